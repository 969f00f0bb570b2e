"""A device on which one kind of job fails: the others take over, and it is left out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from served import needs_two_cores

import hetsched
from hetsched.config import parse
from hetsched.engine.failures import MAX_FAILURES

MACHINE = """
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
pytestmark = [needs_two_cores, pytest.mark.usefixtures("plug_ins")]


@pytest.fixture
def machine(plug_ins: None) -> Iterator[hetsched.Local]:
    with hetsched.Local(parse(MACHINE, "test"), learn=False) as local:
        yield local


def run(local: hetsched.Local, fault: str) -> Any:
    """A job with a fault on the emulated device, all of which the core does."""
    x = np.ones((40, 4))
    job = local.submit("toys:Faulty", x, units=40, fault=fault, core=core_of(local, "emu0"))
    assert (job.result(timeout=60) == 3).all()
    assert job.report is not None
    assert {each.device: each.share for each in job.report.devices if each.share} == {"cpu0": 40}
    return job


def core_of(local: hetsched.Local, device: str) -> int:
    return next(info.cores[0] for info in local.devices()[0] if info.name == device)


def computes(local: hetsched.Local, device: str) -> bool:
    """Also once its process has started again."""
    x = np.ones((4, 8, 8), "complex64")
    y = local.submit("fft", x, devices=device).result(timeout=60)
    return bool(np.allclose(y[:, 0, 0], 64))


def test_a_device_that_crashes_in_one_kind_of_job_takes_no_more_of_it(
    machine: hetsched.Local,
) -> None:
    for _ in range(MAX_FAILURES + 1):
        assert computes(machine, "emu0")
        job = run(machine, "segfault")
    assert any("emu0: takes no jobs of kind faulty" in note for note in job.report.notes)
    assert not any("died" in note for note in job.report.notes)
    assert "emu0: takes no jobs of kind faulty" in str(job.explain())
    assert computes(machine, "emu0")


def test_a_kernel_that_fails_on_a_gpu_runs_on_the_cores_with_a_warning(
    machine: hetsched.Local,
) -> None:
    notes = run(machine, "error").report.notes
    assert any("emu0 takes no part in this job" in note for note in notes)
