"""The split learnt from nothing, on devices whose times are computed: exact, no clock involved."""

from __future__ import annotations

import numpy as np
import pytest
from cores import needs_two_cores

import hetsched
from hetsched.config import Config, parse
from hetsched.job import JobReport

pytestmark = needs_two_cores
EMULATED_GPU = """
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

ONE_ENGINE = EMULATED_GPU.replace("engines = 2", "engines = 1")

BUSY_NEIGHBOUR = """
stealing = false

[[device]]
kind = "emulated"
name = "free"
clock = "virtual"
core = 0
compute = { rate = "2Gflop/s" }

[[device]]
kind = "emulated"
name = "busy"
clock = "virtual"
core = 1
compute = { rate = "1Gflop/s" }
"""

TRANSFER_BOUND = EMULATED_GPU.replace('"1.5Gflop/s"', '"90Gflop/s"').replace("1GB/s", "0.2GB/s")


@pytest.mark.parametrize(
    "text",
    [EMULATED_GPU, ONE_ENGINE, BUSY_NEIGHBOUR, TRANSFER_BOUND],
    ids=["emulated-gpu", "one-engine", "busy-neighbour", "transfer-bound"],
)
def test_from_the_fourth_run_on_all_finish_together_as_predicted(text: str) -> None:
    with hetsched.Local(parse(text, "test"), learn=False) as local:
        x = local.empty((200, 64, 64), "complex64")
        x[...] = np.random.default_rng(3).standard_normal(x.shape)
        reports = [run(local, x) for _ in range(8)]

    assert [report.load for report in reports] == [200] * 8
    for report in reports[3:]:
        assert report.spread is not None
        assert report.spread <= max(0.10, one_unit(report))
        assert report.predicted_seconds == pytest.approx(report.seconds, rel=0.15)


def run(local: hetsched.Local, x: np.ndarray) -> JobReport:
    job = local.submit("fft", x, verify=True)
    job.result(timeout=60)
    assert job.report is not None
    return job.report


def one_unit(report: JobReport) -> float:
    """The time of the slowest device's one unit, relative to the run's: no split is finer."""
    assert report.seconds is not None
    return max(device.seconds / device.share for device in report.devices) / report.seconds


def test_a_first_run_factors_the_share_of_a_device_behind_a_link_by_two() -> None:
    config: Config = parse(EMULATED_GPU.replace("2MiB", "64MiB"), "test")
    with hetsched.Local(config, learn=False) as local:
        report = run(local, np.ones((192, 32, 32), "complex64"))

    chunks = {device.device: device.chunks for device in report.devices}
    assert chunks["emu"] == (32, 16, 8, 4, 2, 1, 1)
