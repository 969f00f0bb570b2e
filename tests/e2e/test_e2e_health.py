"""A device on which one kind of job crashes: the others take over, and it is left out."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from cores import needs_two_cores

import hetsched
from hetsched.client.job import Job
from hetsched.config import parse
from hetsched.engine.failures import MAX_FAILURES
from hetsched.errors import JobFailed

TESTS = Path(__file__).parent.parent
FAULTY = "toys:Faulty"
CORES = """
[deadlines]
chunk = "1s"
step = "5s"

[[device]]
kind = "cpu"
count = 2
hardware_threads = true
team = false
"""
GPU = """
[[device]]
kind = "cpu"
count = 1
team = false

[[device]]
kind = "emulated"
core = 1
memory = "1MiB"
compute = { unit = "20us" }
h2d = { unit = "20us" }
d2h = { unit = "20us" }
"""
pytestmark = needs_two_cores


@contextlib.contextmanager
def engine(config: str) -> Iterator[hetsched.Local]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(TESTS))
        with hetsched.Local(parse(config, "test"), learn=False) as local:
            yield local


@pytest.fixture
def local() -> Iterator[hetsched.Local]:
    with engine(CORES) as local:
        yield local


def core_of(local: hetsched.Local, device: str) -> int:
    return next(info.cores[0] for info in local.devices()[0] if info.name == device)


def run(local: hetsched.Local, **params: object) -> Job:
    """A job that is done and right."""
    job = local.submit(FAULTY, np.ones((40, 4)), units=40, **params)
    assert (job.result(timeout=60) == 3).all()
    return job


def wait_for(local: hetsched.Local, device: str) -> None:
    """Until `device` computes, for example because its process has started again."""
    x = np.ones((4, 8, 8), "complex64")
    assert np.allclose(local.submit("fft", x, devices=device).result(timeout=60)[:, 0, 0], 64)


def shares(job: Job) -> dict[str, int]:
    assert job.report is not None
    return {device.device: device.share for device in job.report.devices if device.share}


@pytest.mark.parametrize("fault", ["segfault", "hang"])
def test_a_core_that_crashes_in_one_kind_of_job_takes_no_more_of_it(
    local: hetsched.Local, fault: str
) -> None:
    core = core_of(local, "cpu1")

    for _ in range(MAX_FAILURES + 1):
        wait_for(local, "cpu1")
        job = run(local, fault=fault, core=core)
        assert shares(job) == {"cpu0": 40}

    assert any("cpu1: takes no jobs of kind faulty" in note for note in job.report.notes)
    assert not any("died" in note for note in job.report.notes)
    assert "cpu1: takes no jobs of kind faulty" in str(job.explain())
    wait_for(local, "cpu1")  # which takes jobs of other kinds


def test_two_plug_ins_that_hang_leave_all_devices_to_others() -> None:
    with engine(CORES.replace("5s", "2s")) as local:
        for dtype in ("float64", "float32"):
            x = np.ones((40, 4), dtype)
            job = local.submit(FAULTY, x, units=40, dtype=dtype, fault="hang")
            with pytest.raises(JobFailed, match="on every device that it may use"):
                job.result(timeout=60)

        a, b = np.eye(8), np.ones((8, 8))
        job = local.submit("matrix_update", {"C": np.zeros((8, 8)), "A": a, "B": b})
        assert np.array_equal(job.result(timeout=60), b)
        assert not any("quarantined" in why for why in local.devices()[1].values())


def test_a_kernel_that_fails_on_a_gpu_runs_on_the_cores_with_a_warning() -> None:
    with engine(GPU) as local:
        job = run(local, fault="error", core=core_of(local, "emu0"))

        assert shares(job) == {"cpu0": 40}
        assert any("emu0 takes no part in this job" in note for note in job.report.notes)
