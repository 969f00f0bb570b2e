"""A GPU is lost with rows that only its own memory had: the core goes back to what was saved."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from accelerator_toys import simulated_gpu
from diffusing_workload import Diffusion, DiffusionParams
from hetsched_workloads.pcg import Pcg
from iterating_bench import CORE, IteratingBench

from hetsched.device_process import epochs
from hetsched.device_process.epochs import IterativeRun
from hetsched.devices.accelerator.iterating import AcceleratorStages
from hetsched.devices.cpu.device import CpuDevice
from hetsched.iterations.serial import run
from hetsched.transport.device_messages import CommandFailed, IterationsDone, IterationsStopped

ITERATIONS = 12
X = np.random.default_rng(5).standard_normal((24, 4))
CORE_SLOT, GPU_SLOT = 0, 1


class Lost(Exception):
    """The GPU's process ends."""


@pytest.fixture(params=[{CORE_SLOT: 8, GPU_SLOT: 16}, {GPU_SLOT: 16, CORE_SLOT: 8}])
def shares(request: pytest.FixtureRequest) -> dict[int, int]:
    shares: dict[int, int] = request.param
    return shares


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[IteratingBench]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(epochs, "MAX_REPEATED", 0.2)
    monkeypatch.setattr(epochs, "MAX_TIME", 1e-9)  # as rarely as it may be
    devices = [
        (CORE, CpuDevice),
        simulated_gpu(3),
    ]
    params = DiffusionParams(iterations=ITERATIONS)
    with contextlib.closing(IteratingBench(params, X, devices, saves=True)) as bench:
        bench.prepare()
        yield bench


def lose_gpu(monkeypatch: pytest.MonkeyPatch, where: str, moment: int) -> None:
    """Have the GPU end at the `moment`-th call of a method."""
    owner: Any = IterativeRun if where in ("save", "restore") else AcceleratorStages
    original, calls = getattr(owner, where), 0

    def counted(self: Any, *args: Any) -> Any:
        nonlocal calls
        executor = self.executor if owner is IterativeRun else self
        calls += executor.has_own_memory
        if executor.has_own_memory and calls == moment:
            raise Lost
        return original(self, *args)

    monkeypatch.setattr(owner, where, counted)


def run_until_lost(bench: IteratingBench) -> tuple[int, int | None]:
    """Return the last iteration that is finished, and the one to go back to."""
    events = []
    while len(events) < 2:
        _, event = bench.events.get(timeout=60)
        if isinstance(event, CommandFailed):
            bench.control.abort()
        if not isinstance(event, IterationsDone):
            events.append(event)
    assert {type(event) for event in events} == {CommandFailed, IterationsStopped}
    return bench.control.finished((0, 1)), bench.control.saved((0, 1))


def go_on(bench: IteratingBench, finished: int, saved: int | None) -> None:
    first = finished + 1 if saved is None else saved + 1
    previous = (0, 1) if saved is None and first else ()
    bench.iterate(
        {CORE_SLOT: 24}, first=first, previous=previous, restores=saved is not None, epoch=2
    )
    bench.stopped(1)


def expected(bench: IteratingBench, shares: dict[int, int], last: int) -> np.ndarray:
    """The result with these shares up to iteration `last`, then of the core alone."""
    split = tuple(shares.values())
    run_of_all = run(Diffusion(), bench.params, {"x": X}, lambda k: split if k <= last else (24,))
    return run_of_all.outputs["y"]


@pytest.mark.parametrize("moment", [1, 4, 5, 6, 9, 13, 20, 26, 27])
def test_a_core_goes_back_when_the_gpu_is_lost_in_a_stage(
    bench: IteratingBench, shares: dict[int, int], moment: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    lose_gpu(monkeypatch, "compute", moment)
    bench.iterate(shares)
    finished, saved = run_until_lost(bench)

    go_on(bench, finished, saved)

    last = finished if saved is None else saved
    assert finished - last <= 1 + 0.2 * ITERATIONS
    if tuple(shares) == (0, 1):
        np.testing.assert_array_equal(bench.arrays["y"], expected(bench, shares, last))
    np.testing.assert_allclose(bench.arrays["y"], expected(bench, shares, last), atol=1e-13)


@pytest.mark.parametrize(
    ("where", "moment"), [("write_back", 2), ("write_back", 4), ("save", 1), ("save", 3)]
)
def test_a_core_goes_on_when_the_gpu_is_lost_while_rows_are_saved(
    bench: IteratingBench,
    shares: dict[int, int],
    where: str,
    moment: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lose_gpu(monkeypatch, where, moment)
    bench.iterate(shares)
    finished, saved = run_until_lost(bench)

    go_on(bench, finished, saved)

    assert (saved is None) == (where == "save")
    last = finished if saved is None else saved
    np.testing.assert_allclose(bench.arrays["y"], expected(bench, shares, last), atol=1e-13)


def test_a_device_that_is_lost_while_going_back_leaves_what_was_saved(
    bench: IteratingBench, shares: dict[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    lose_gpu(monkeypatch, "compute", 20)
    bench.iterate(shares)
    _, saved = run_until_lost(bench)
    assert saved is not None
    lose_gpu(monkeypatch, "restore", 1)
    bench.iterate(shares, first=saved + 1, restores=True, epoch=2)

    again = run_until_lost(bench)
    go_on(bench, *again)

    assert again == (saved, saved)
    np.testing.assert_allclose(bench.arrays["y"], expected(bench, shares, saved), atol=1e-13)


def test_only_halos_and_whole_arrays_come_home_between_two_saves(
    bench: IteratingBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    lose_gpu(monkeypatch, "compute", 20)
    bench.iterate({CORE_SLOT: 8, GPU_SLOT: 16})
    finished, saved = run_until_lost(bench)

    assert saved is not None and saved < finished
    own = bench.arrays["u"][finished % 2, 1:-1][8:]
    true = run(Diffusion(), DiffusionParams(iterations=finished), {"x": X}, (8, 16)).outputs["y"]
    is_home = (own == true[8:]).all(axis=1)
    assert is_home[0] and is_home[-1] and not is_home[1:-1].any()


@pytest.mark.parametrize("moment", [20, 31, 38])
def test_another_gpu_goes_back_too(
    moment: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(epochs, "MAX_REPEATED", 10.0)  # in a job of unknown length
    monkeypatch.setattr(epochs, "MAX_TIME", 1e-9)
    workload = Pcg()
    params = workload.infer({"grid": "5x6x7", "block": 20}, {})
    inputs = {spec.name: np.empty(spec.shape(210), spec.dtype) for spec in workload.arrays(params)}
    for name, array in inputs.items():
        if name != "x":
            workload.generate(params, 3, name, 0, array)
    del inputs["x"]
    gpus = [simulated_gpu(seed) for seed in (1, 2)]
    bench = IteratingBench(
        params,
        inputs,
        [(CORE, CpuDevice), *gpus],
        workload="hetsched_workloads.pcg:Pcg",
        saves=True,
    )
    with contextlib.closing(bench):
        bench.prepare(variant="scipy")
        lose_gpu(monkeypatch, "compute", moment)
        bench.iterate({0: 60, 1: 60, 2: 90})
        lost, events = -1, 0
        while events < 3:
            slot, event = bench.events.get(timeout=60)
            events += not isinstance(event, IterationsDone)
            if isinstance(event, CommandFailed):
                lost = slot
                bench.control.abort()
        saved = bench.control.saved((0, 1, 2))
        assert lost in (1, 2) and saved is not None
        bench.iterate({0: 120, 3 - lost: 90}, first=saved + 1, restores=True, epoch=2)
        bench.stopped(2)
        x = bench.arrays["x"].copy()

    expected = run(workload, params, inputs, (60, 60, 90)).outputs["x"]
    np.testing.assert_array_equal(x, expected)
