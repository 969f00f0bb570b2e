"""An error outside the kernels ends its own job only."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from concurrent.futures import CancelledError
from pathlib import Path

import numpy as np
import pytest

import hetsched
from hetsched.errors import JobFailed
from hetsched.job import JobState, Running

HERE = Path(__file__).parent
ODD = "odd_scale:OddScale"


@pytest.fixture(scope="module")
def local() -> Iterator[hetsched.Local]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(HERE))
        with hetsched.Local("cpu-only", learn=False) as local:
            yield local


def works(local: hetsched.Local) -> bool:
    c = local.submit(ODD, rows=40, verify=True).result(timeout=60)
    return bool((c == 4).all())


def cancel_at(local: hetsched.Local, stage: str) -> None:
    def follow(state: JobState) -> None:
        if isinstance(state, Running) and state.stage == stage:
            local.cancel(state.job)

    job = local.submit(ODD, rows=20_000, verify=True, follow=follow)
    with pytest.raises(CancelledError):
        job.result(timeout=60)


def test_inputs_that_cannot_be_made_fail_their_job(local: hetsched.Local) -> None:
    job = local.submit(ODD, trouble="generate")

    with pytest.raises(JobFailed, match="no numbers today"):
        job.result(timeout=60)

    assert works(local)


@pytest.mark.parametrize("stage", ["preparing", "generating", "computing", "verifying"])
def test_a_job_can_be_cancelled_in_every_stage(local: hetsched.Local, stage: str) -> None:
    cancel_at(local, stage)

    assert works(local)


def test_a_cancelled_job_leaves_the_caller_s_arrays_alone(local: hetsched.Local) -> None:
    factors, rows = local.empty((64,), "float64"), local.empty((20_000, 64), "float64")
    factors[...], rows[...] = 42.0, 1.0

    def follow(state: JobState) -> None:
        if isinstance(state, Running) and state.stage == "computing":
            local.cancel(state.job)

    job = local.submit(ODD, {"F": factors, "C": rows}, rows=20_000, follow=follow)
    with pytest.raises(CancelledError):
        job.result(timeout=60)

    assert (factors == 42).all()
    assert (rows == 1).all()


def test_a_process_that_dies_while_checking_costs_no_job(
    local: hetsched.Local, tmp_path: Path
) -> None:
    job = local.submit(ODD, trouble="residual", marker=str(tmp_path / "died"), verify=True)

    assert (job.result(timeout=60) == 4).all()
    assert (tmp_path / "died").exists()


def test_a_process_that_dies_while_inputs_are_made_costs_no_job(local: hetsched.Local) -> None:
    killed: list[int] = []

    def follow(state: JobState) -> None:
        if not killed and isinstance(state, Running) and state.stage == "generating":
            killed.append(local.pids()["cpu0"])
            os.kill(killed[0], signal.SIGKILL)

    job = local.submit(ODD, rows=20_000, verify=True, follow=follow)

    assert (job.result(timeout=60) == 4).all()
    assert killed
    assert np.isfinite(job.report.seconds)
