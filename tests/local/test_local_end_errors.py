"""An exception of our own while a job ends: it ends all the same, and the next one runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hetsched
from hetsched.engine.concurrency.side_jobs import SideJobs
from hetsched.engine.queue.job_queue import JobQueue


def broken(*arguments: Any) -> None:
    raise RuntimeError("a bug")


@pytest.mark.parametrize(("part", "name"), [(SideJobs, "ended"), (JobQueue, "end")])
def test_a_job_ends_despite_an_exception_in_its_last_steps(
    part: type, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(part, name, broken)
    with hetsched.Local("cpu-only", learn=False) as local:
        jobs = [local.submit("fft", batch="2x16x16", seed=seed) for seed in range(3)]

        shapes = [np.shape(job.result(60)) for job in jobs]

    assert shapes == [(2, 16, 16)] * 3
