"""A small job beside a larger one, whose chunks wait until the test lets them pass."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import Empty, SimpleQueue

import numpy as np
import pytest

from hetsched.client.job import Job
from hetsched.config import parse
from hetsched.engine import small_jobs
from hetsched.engine.run import runner
from hetsched.job import JobState, Queued, Running
from hetsched.local import Local

MACHINE = """
[[device]]
kind = "emulated"
name = "core"
count = 2
compute = { unit = "1us" }

[deadlines]
chunk = "10m"  # chunks wait as long as this machine needs for everything else
"""
WORKLOAD = "toys:Toy"


class States:
    """The states of a job, to wait for."""

    def __init__(self, job: Job) -> None:
        self._states: SimpleQueue[JobState] = SimpleQueue()
        job.follow(self._states.put)

    def wait_for(self, matches: Callable[[JobState], bool], timeout: float = 60) -> None:
        while not matches(self._states.get(timeout=timeout)):
            pass


def has_progress(state: JobState) -> bool:
    return isinstance(state, Running) and any(device.done for device in state.devices)


def pass_first_chunks(main: Job, gate: Path) -> None:
    """Until one is reported, so that the speed is known: a device that waits reports nothing."""
    states = States(main)
    states.wait_for(lambda state: isinstance(state, Running))
    for _ in range(30):
        gate.write_bytes(b"")
        with contextlib.suppress(Empty):
            states.wait_for(has_progress, timeout=5)
            return
    raise AssertionError("no chunk was reported")


@contextlib.contextmanager
def opened(gate: Path) -> Iterator[None]:
    """Let all chunks pass."""
    ended = threading.Event()

    def let_pass() -> None:
        while not ended.is_set():
            gate.write_bytes(b"")

    thread = threading.Thread(target=let_pass, daemon=True)
    thread.start()
    yield
    ended.set()
    last_reader = os.open(gate, os.O_RDONLY | os.O_NONBLOCK)
    thread.join()
    os.close(last_reader)


def test_both_jobs_survive_the_death_of_their_device_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "PROGRESS_SECONDS", 0.0)
    monkeypatch.setattr(small_jobs, "MIN_REMAINING_SECONDS", 0.0)
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    large, x = (np.random.default_rng(0).standard_normal((units, 4)) for units in (3200, 4))
    with Local(parse(MACHINE, "test"), learn=False) as local:
        for _ in range(2):  # unmeasured jobs wait for their turn
            local.submit(WORKLOAD, x, units=4).result(60)
        main = local.submit(WORKLOAD, large, units=3200, gate=str(gate))
        pass_first_chunks(main, gate)
        small = local.submit(WORKLOAD, x, units=4)
        States(small).wait_for(lambda state: not isinstance(state, Queued))
        assert not main.done()

        for pid in set(local.pids().values()):
            os.kill(pid, signal.SIGKILL)
        with opened(gate):
            np.testing.assert_allclose(small.result(60), 2 * x + 1)
            np.testing.assert_allclose(main.result(60), 2 * large + 1)
