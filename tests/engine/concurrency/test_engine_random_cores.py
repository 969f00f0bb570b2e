"""Random histories of jobs on shared cores: results are right, and nothing is written later."""

from __future__ import annotations

from pathlib import Path

import pytest
from random_cores import NEVER, RandomCores

from hetsched.errors import Cancelled, Unavailable

HISTORIES_PER_TEST = 40
EXPECTED = (Cancelled.code, Unavailable.code)
"""The latter: all processes had died when the job was planned."""


@pytest.mark.parametrize("first_seed", range(0, 200, HISTORIES_PER_TEST))
def test_jobs_on_shared_cores_compute_what_is_theirs(
    first_seed: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for seed in range(first_seed, first_seed + HISTORIES_PER_TEST):
        cores = RandomCores(seed)

        cores.run()

        for job in cores.jobs:
            assert job.finish is not None
            assert job.finish.error is None or job.finish.error.code in EXPECTED, f"seed {seed}"
            assert (job.y == NEVER).all(), f"seed {seed}: job {job.number} was written to"


def test_without_trouble_every_job_is_done(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for seed in range(HISTORIES_PER_TEST):
        cores = RandomCores(seed)
        cores.trouble = 0.0

        cores.run()

        assert all(job.finish is not None and job.finish.error is None for job in cores.jobs)
