"""The loop of planning, running and learning: it converges and stays."""

from __future__ import annotations

import pytest
from planner_devices import MIB, PLANE, demand

from hetsched.device import DeviceInfo
from hetsched.models import Affine, DeviceModel
from hetsched.simulate.learning import LearningRun, learn
from hetsched.simulate.machine import SimulatedDevice, SimulatedMachine

CORE = 10e-3
"""Seconds a plane."""


def runs_of(
    load: int, memory: int, engines: int, speedup: float, rate: float
) -> list[LearningRun]:
    """Runs on two cores, and a GPU so many times as fast behind a link of so many B/s."""
    curve, link = Affine(0.0, CORE), Affine(1e-5, PLANE / rate)
    infos = [DeviceInfo(name=f"cpu{i}", kind="emulated", identity="c") for i in range(2)]
    devices = [SimulatedDevice(info, DeviceModel(curve, curve), demand()) for info in infos]
    gpu = DeviceInfo(name="g", kind="emulated", identity="g", link=True, engines=engines)
    model = DeviceModel(curve, Affine(3e-5, CORE / speedup), link, link)
    devices.append(SimulatedDevice(gpu, model, demand(memory)))
    return learn(SimulatedMachine(load, tuple(devices)), 6, 0.0, 0)


@pytest.mark.parametrize("load", [64, 256])
@pytest.mark.parametrize(
    ("memory", "engines", "speedup", "rate"),
    [
        (64 * MIB, 2, 3, 1e9), (64 * MIB, 1, 3, 1e9), (64 * MIB, 0, 3, 1e9),
        (64 * MIB, 2, 20, 1e9), (1 << 30, 2, 20, 6e9), (20 * MIB, 1, 10, 0.5e9),
    ],
)  # fmt: skip
def test_from_run_4_on_devices_finish_together_as_predicted(
    memory: int, engines: int, speedup: float, rate: float, load: int
) -> None:
    for run in runs_of(load, memory, engines, speedup, rate)[3:]:
        assert run.plan.predicted_seconds == pytest.approx(run.measured, rel=0.15)
        for each in run.plan.assignments:
            assert each.predicted_seconds is not None
            assert each.predicted_seconds >= min(0.9 * run.measured, run.measured - CORE)


def test_the_loop_settles() -> None:
    *_, before, last = runs_of(256, 64 * MIB, 2, 3, 1e9)
    assert before.plan.shares == last.plan.shares
