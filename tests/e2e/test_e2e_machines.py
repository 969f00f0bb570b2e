"""Plans on machines whose times are computed: exact, no clock involved."""

from __future__ import annotations

import itertools
import random
import statistics
from pathlib import Path

import numpy as np
import pytest
from odd_workloads import ODD_BYTES
from served import needs_two_cores
from toys import WIDTH

import hetsched
from hetsched.config import parse
from hetsched.job import JobReport, JobSpec

pytestmark = needs_two_cores
GPU = """
stealing = false
[[device]]
kind = "emulated"
name = "slow"
count = 2
clock = "virtual"
core = 0
compute = { gap = "30us", rate = "0.5Gflop/s" }
[[device]]
kind = "emulated"
name = "emu"
clock = "virtual"
core = 1
memory = "2MiB"
engines = 2
duplex = [0.9, 0.9]
compute = { gap = "30us", rate = "1.5Gflop/s" }
h2d = { gap = "10us", rate = "1GB/s" }
d2h = { gap = "10us", rate = "1GB/s" }
"""
BUSY_NEIGHBOUR = """
stealing = false
[[device]]
kind = "emulated"
clock = "virtual"
core = 0
compute = { rate = "2Gflop/s" }
[[device]]
kind = "emulated"
clock = "virtual"
core = 1
compute = { rate = "1Gflop/s" }
"""
MACHINES = {
    "emulated GPU": GPU,
    "one engine": GPU.replace("engines = 2", "engines = 1"),
    "busy neighbour": BUSY_NEIGHBOUR,
    "transfer-bound": GPU.replace('"1.5Gflop/s"', '"90Gflop/s"').replace("1GB/s", "0.2GB/s"),
}


def run(local: hetsched.Local, x: np.ndarray) -> JobReport:
    job = local.submit("fft", x, verify=True)
    job.result(timeout=60)
    assert job.report is not None and job.report.seconds is not None
    return job.report


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.stress] * (name == "one engine")) for name in MACHINES],
)
def test_from_the_fourth_run_on_all_finish_together_as_predicted(name: str) -> None:
    with hetsched.Local(parse(MACHINES[name], "test"), learn=False) as local:
        x = local.empty((200, 64, 64), "complex64")
        x[...] = np.random.default_rng(3).standard_normal(x.shape)
        reports = [run(local, x) for _ in range(5)]
    for report in reports[3:]:
        assert report.spread is not None and report.seconds is not None
        # No split is finer than a unit of the slowest device.
        one_unit = max(device.seconds / device.share for device in report.devices) / report.seconds
        assert report.spread <= max(0.10, one_unit)
        assert report.predicted_seconds == pytest.approx(report.seconds, rel=0.15)


def test_a_first_run_factors_the_share_of_a_device_behind_a_link_by_two() -> None:
    with hetsched.Local(parse(GPU.replace("2MiB", "64MiB"), "test"), learn=False) as local:
        report = run(local, np.ones((192, 32, 32), "complex64"))
    chunks = {device.device: device.chunks for device in report.devices}
    assert chunks["emu"] == (32, 16, 8, 4, 2, 1, 1)


def test_a_measured_share_in_many_chunks_stays_with_its_device() -> None:
    machine = """
    [[device]]
    kind = "cpu"
    count = 1
    [[device]]
    kind = "emulated"
    name = "slow"
    memory = "1MiB"
    compute = { gap = "1ms", unit = "2ms" }
    h2d = { gap = "20us", unit = "20us" }
    d2h = { gap = "20us", unit = "20us" }
    """
    measure = {"cpu0": "scipy", "slow": "scipy"}
    with hetsched.Local(parse(machine, "test"), learn=False) as local:
        params = {"batch": "64x128x128"}
        job = local.run(
            JobSpec(workload="fft", params=params, devices=tuple(measure), measure=measure)
        )
        job.result(timeout=60)
    assert job.report is not None
    assert [device.share for device in job.report.devices] == [32, 32]
    assert len(job.report.devices[1].chunks) > 3


@pytest.mark.parametrize("engines", [1, 2])
def test_room_for_5_units_is_filled_by_chunks_of_2_and_3(engines: int) -> None:
    """The device refuses what doesn't fit, and what is read too early is poison."""
    machine = f"""
    [[device]]
    kind = "emulated"
    clock = "virtual"
    core = 0
    memory = "{5 * 2 * 64 * 64 * 8}B"
    engines = {engines}
    compute = {{ gap = "300us", unit = "1ms" }}
    h2d = {{ gap = "200us", rate = "109MB/s" }}
    d2h = {{ gap = "200us", rate = "109MB/s" }}
    """
    x = (np.arange(60 * 64 * 64).reshape(60, 64, 64) % 97).astype("complex64")
    with hetsched.Local(parse(machine, "odd"), learn=False) as local:
        report = [run(local, x) for _ in range(4)][-1]
    assert report.predicted_seconds == pytest.approx(report.seconds, rel=0.02)
    middle = report.devices[0].chunks[6:-6]
    assert {a + b for a, b in itertools.pairwise(middle)} == {5}
    assert set(middle) == {2, 3}


# ---- batches of odd numbers of units that need more memory than the next larger even ones

ODD = "odd_workloads:OddBatches"
ODD_CORES = """
[[device]]
kind = "emulated"
name = "core"
count = 2
clock = "virtual"
compute = { unit = "1ms" }
"""
LINKED = """
[[device]]
kind = "emulated"
name = "linked"
clock = "virtual"
core = 0
memory = "MEMORY B"
engines = 2
compute = { gap = "100us", unit = "1ms" }
h2d = { gap = "50us", rate = "1MB/s" }
d2h = { gap = "50us", rate = "1MB/s" }
"""


@pytest.mark.parametrize(
    ("room", "loads", "shared"),
    [(0, (16, 17, 33, 100, 399, 400), False), (1, (17, 100), False), (5, (33, 399), True),
     (40, (16, 399), False)],
)  # fmt: skip
def test_odd_and_even_chunks_fit_into_any_memory(
    room: int, loads: tuple[int, ...], shared: bool, tmp_path: Path
) -> None:
    memory = str(room * (16 * WIDTH + ODD_BYTES) + 16 * WIDTH)
    machine = (LINKED.replace("MEMORY ", memory) if room else "") + ODD_CORES
    source, target = tmp_path / "x.npy", tmp_path / "y.npy"
    with hetsched.Local(parse(machine, "odd"), learn=False) as local:
        for units in loads:
            x = np.random.default_rng(units).standard_normal((units, WIDTH))
            params = {"units": units, "shared": shared, "verify": True}
            for _ in range(3):  # unmeasured, factored, planned
                job = local.submit(ODD, x, **params)
                assert np.array_equal(job.result(timeout=60), 2 * x + 1)
            np.save(source, x)
            local.submit(ODD, source, out=target, **params).result(timeout=60)
            assert np.array_equal(np.load(target), 2 * x + 1)
            target.unlink()


# ---- machines drawn at random

SHAPE = (150, 64, 64)
UNIT_BYTES = 64 * 64 * 8


def draw(seed: int) -> str:
    """Draw a configuration: 1 to 3 cores and a GPU behind a link, or 2 to 4 cores."""
    chance = random.Random(seed)
    has_gpu = chance.random() < 0.75
    speed = chance.uniform(0.3, 0.8) if chance.random() < 0.5 else None

    def cost(phase: str, rate: float, unit: str) -> str:
        return f'{phase} = {{ gap = "{chance.randint(10, 100)}us", rate = "{rate:.3f}{unit}" }}'

    tables = [
        [f'name = "core{i}"', cost("compute", speed or chance.uniform(0.3, 0.8), "Gflop/s")]
        for i in range(chance.randint(1, 3) + (not has_gpu))
    ]
    if has_gpu:
        tables.append([
            'name = "emu0"', f'memory = "{chance.randint(24, 128) * UNIT_BYTES // 2}B"',
            f"engines = {chance.choice((1, 2))}",
            f"duplex = [{chance.uniform(0.6, 1):.2f}, {chance.uniform(0.6, 1):.2f}]",
            cost("compute", chance.uniform(0.8, 2.5), "Gflop/s"),
            cost("h2d", chance.uniform(0.3, 2.0), "GB/s"),
            cost("d2h", chance.uniform(0.3, 2.0), "GB/s"),
        ])  # fmt: skip
    head = ["[[device]]", 'kind = "emulated"', 'clock = "virtual"']
    return "\n".join(["stealing = false", *(line for table in tables for line in head + table)])


def is_balanced_and_predicted(seed: int) -> bool:
    """By the fourth run."""
    reports = []
    with hetsched.Local(parse(draw(seed), "machine"), learn=False) as local:
        x, y = local.empty(SHAPE, "complex64"), local.empty(SHAPE, "complex64")
        x[...] = 1
        for _ in range(8):
            job = local.submit("fft", x, out=y)
            job.result()
            reports.append(job.report)
    fourth = reports[3]
    unit = max(device.seconds / device.share for device in fourth.devices if device.share)
    errors = [abs(report.predicted_seconds / report.seconds - 1) for report in reports[3:]]
    return fourth.spread <= max(0.10, unit / fourth.seconds) and statistics.median(errors) <= 0.10


@pytest.mark.stress
def test_the_split_is_found_on_nearly_all_machines() -> None:
    """Some with little memory need a run more, for their chunks."""
    assert sum(map(is_balanced_and_predicted, range(60))) >= 57
