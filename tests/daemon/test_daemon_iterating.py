"""Iterative jobs in a real daemon."""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cores import COUNT
from diffusing_workload import DiffusionParams, diffused
from real_daemon import serving

from hetsched.client.client import Client
from hetsched.errors import HetschedError
from hetsched.job import JobState, Running
from hetsched.store.checkpoints.checkpoint_file import read_record

DIFFUSION = "diffusing_workload:Diffusion"
CONFIG = f"""
[[device]]
kind = "cpu"
count = {COUNT}
hardware_threads = true

[arena]
limit = "256MiB"
"""
TESTS = Path(__file__).parent.parent


def test_jobs_run_and_end_when_the_daemon_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(TESTS))
    x = np.random.default_rng(1).standard_normal((40, 4))
    is_iterating = threading.Event()

    def follow(state: JobState) -> None:
        if isinstance(state, Running) and state.iteration:
            is_iterating.set()

    with serving(tmp_path, CONFIG) as daemon, Client(tmp_path) as client:
        job = client.submit(DIFFUSION, x, rows=40, iterations=15, verify=True)
        y, _ = diffused(DiffusionParams(rows=40, iterations=15), x)
        np.testing.assert_allclose(job.result(60).y, y)

        endless = client.submit(DIFFUSION, x, rows=40, iterations=10**8, follow=follow)
        assert is_iterating.wait(60)
        assert daemon.stop(signal.SIGTERM) == 0
        with pytest.raises(HetschedError):
            endless.result(60)


def test_a_durable_job_continues_in_the_next_daemon_where_it_was_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(TESTS))
    x = np.random.default_rng(1).standard_normal((40, 4))
    inputs, stopped, checkpoint = (tmp_path / name for name in ("x.npy", "stopped", "job.ckpt"))
    np.save(inputs, x)
    is_iterating = threading.Event()

    def follow(state: JobState) -> None:
        if isinstance(state, Running) and state.iteration:
            is_iterating.set()

    with serving(tmp_path, CONFIG) as daemon, Client(tmp_path) as client:
        options: dict[str, Any] = {
            "checkpoint": checkpoint,
            "every": "1h",
            "slow_until": str(stopped),
        }
        options |= {"rows": 40, "iterations": 2000}
        job = client.submit(DIFFUSION, inputs, follow=follow, **options)
        assert is_iterating.wait(60)
        assert daemon.stop(signal.SIGTERM) == 0
        saved = read_record(str(checkpoint)).iteration
        stopped.touch()
        (tmp_path / "notify.sock").unlink()
        with serving(tmp_path, CONFIG):
            y = job.result(60).y
            np.testing.assert_allclose(y, diffused(DiffusionParams(40, iterations=2000), x)[0])

    assert job.report is not None
    assert job.report.continued_after == saved > 0
