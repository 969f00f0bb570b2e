"""Small jobs beside a larger one, whose chunks wait until the test lets them pass."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import numpy as np
import pytest

from hetsched.client.job import Job
from hetsched.config import parse
from hetsched.engine import small_jobs
from hetsched.engine.run import runner
from hetsched.job import JobState, Queued, Running
from hetsched.local import Local

EMULATED = """
[[device]]
kind = "emulated"
name = "core"
count = 2
compute = { unit = "1us" }
"""
PATIENT = """
[deadlines]
chunk = "10m"
"""
"""Chunks of the large job wait as long as this machine needs for everything else."""
UNITS = 3200
SMALL_UNITS = 4


class States:
    """The states of a job, to wait for."""

    def __init__(self, job: Job) -> None:
        self._states: SimpleQueue[JobState] = SimpleQueue()
        job.follow(self._states.put)

    def wait_for(self, matches: Callable[[JobState], bool], timeout: float = 60) -> JobState:
        while not matches(state := self._states.get(timeout=timeout)):
            pass
        return state


def is_running(state: JobState) -> bool:
    return isinstance(state, Running)


def has_started(state: JobState) -> bool:
    """Also if it has ended before anybody looked."""
    return not isinstance(state, Queued)


def has_progress(state: JobState) -> bool:
    return isinstance(state, Running) and any(device.done for device in state.devices)


class Bench:
    """A Local with a large job, each chunk of which waits for the gate."""

    def __init__(self, local: Local, folder: Path) -> None:
        self.local = local
        self.gate = folder / "gate"
        self.folder = folder
        os.mkfifo(self.gate)
        self._is_open = False
        self._opener: threading.Thread | None = None
        self.x = np.random.default_rng(0).standard_normal((UNITS, 4))
        for _ in range(2):  # unmeasured jobs wait for their turn
            self.submit_small()[0].result(60)
        self.main = local.submit("gated_workload:Gated", self.x, units=UNITS, gate=str(self.gate))
        self.main_states = States(self.main)

    def pass_first_chunk(self) -> None:
        """Let chunks pass until one is reported, so that the large job's speed is known."""
        self.main_states.wait_for(is_running)
        for _ in range(30):
            self.gate.write_bytes(b"")
            with contextlib.suppress(Empty):
                self.main_states.wait_for(has_progress, timeout=20)
                return
        raise AssertionError("no chunk was reported")

    def submit_small(self, **options: Any) -> tuple[Job, np.ndarray]:
        x = np.random.default_rng(1).standard_normal((SMALL_UNITS, 4))
        return self.local.submit("gated_workload:Gated", x, units=SMALL_UNITS, **options), x

    def small_beside(self, **options: Any) -> tuple[Job, np.ndarray]:
        """A small job that has started while the large one runs."""
        job, x = self.submit_small(**options)
        States(job).wait_for(has_started)
        assert not self.main.done()
        return job, x

    def open(self) -> None:
        """Let all chunks pass from now on."""
        self._is_open = True
        self._opener = threading.Thread(target=self._keep_open, daemon=True)
        self._opener.start()

    def _keep_open(self) -> None:
        while self._is_open:
            self.gate.write_bytes(b"")

    def close(self) -> None:
        self._is_open = False
        last_reader = os.open(self.gate, os.O_RDONLY | os.O_NONBLOCK)
        if self._opener is not None:
            self._opener.join()
        os.close(last_reader)

    def check_main(self) -> None:
        np.testing.assert_allclose(self.main.result(60), 2 * self.x + 1)


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    folders = [str(Path(__file__).parent), str(Path(__file__).parents[1])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(folders))
    for folder in folders:
        monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(runner, "PROGRESS_SECONDS", 0.0)
    monkeypatch.setattr(small_jobs, "MIN_REMAINING_SECONDS", 0.0)
    with Local(config=parse(EMULATED + PATIENT, "test"), learn=False) as local:
        bench = Bench(local, tmp_path)
        with contextlib.closing(bench):
            yield bench


def test_several_small_jobs_run_at_the_side_of_one(bench: Bench) -> None:
    bench.pass_first_chunk()
    first, x = bench.small_beside()
    others = [bench.submit_small()[0] for _ in range(6)]

    bench.open()

    for job in (first, *others):
        np.testing.assert_allclose(job.result(60), 2 * x + 1)
    bench.check_main()


def test_both_jobs_survive_the_death_of_their_device_process(bench: Bench) -> None:
    bench.pass_first_chunk()
    small, x = bench.small_beside()

    for pid in set(bench.local.pids().values()):
        os.kill(pid, signal.SIGKILL)
    bench.open()

    np.testing.assert_allclose(small.result(60), 2 * x + 1)
    bench.check_main()
