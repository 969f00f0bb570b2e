"""A client whose daemon stops, and the one that is started after it."""

from __future__ import annotations

import gc
import socket
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

import daemon_harness
import numpy as np
import pytest
from daemon_harness import Harness

from hetsched.client.client import MAX_KEPT_SEGMENTS, Client
from hetsched.errors import InputMissing, TryAgain
from hetsched.job import ArenaRef, Dependency, JobSpec


class Daemons:
    """Daemons one after the other in the same folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running: AbstractContextManager[Harness] | None = None
        self._starts = 0

    def start(self) -> Harness:
        self._starts += 1
        self._running = daemon_harness.daemon(self._folder, first_segment=1000 * self._starts)
        return self._running.__enter__()

    def stop(self) -> None:
        running, self._running = self._running, None
        if running is not None:
            running.__exit__(None, None, None)


@pytest.fixture
def daemons(tmp_path: Path) -> Iterator[Daemons]:
    daemons = Daemons(tmp_path)
    with ExitStack() as stack:
        stack.callback(daemons.stop)
        yield daemons


def arrived(harness: Harness) -> JobSpec:
    """The only job that the daemon has, once it has it."""
    assert harness.until(lambda: len(harness.engine.waiting) == 1)
    return harness.engine.specs[-1]


def finish(harness: Harness) -> None:
    harness.ask(lambda: harness.engine.finish(len(harness.engine.specs)))


def test_an_array_of_the_last_daemon_is_used_in_place_by_the_next(
    daemons: Daemons, tmp_path: Path
) -> None:
    daemons.start()
    with Client(tmp_path, timeout=60) as client:
        x, y = client.empty(3, "float64"), client.empty(3, "float64")
        x[:] = 1
        daemons.stop()
        harness = daemons.start()
        client.submit("double", x, out=y).result(60)
        assert y.tolist() == [2.0] * 3
        (ref,) = harness.engine.specs[0].inputs.values()
        assert isinstance(ref, ArenaRef)
        assert harness.ask(lambda: harness.arena.used) == 2 * 65536
        del x, y
        gc.collect()
        client.ping()
        assert harness.until(lambda: harness.arena.used == 0)


def test_a_result_that_is_lost_with_its_daemon_is_computed_again(
    daemons: Daemons, tmp_path: Path
) -> None:
    harness = daemons.start()

    def die_when_done() -> None:
        for session in harness.requests.sessions:
            session.connection.shutdown(socket.SHUT_RDWR)
        harness.engine.finish(1)

    with Client(tmp_path, timeout=60) as client:
        job = client.submit("wait", np.ones(3))
        harness.ask(die_when_done)
        daemons.stop()
        harness = daemons.start()
        arrived(harness)
        finish(harness)
        assert job.result(60).tolist() == [2.0] * 3


def test_jobs_of_a_chain_get_new_numbers_from_a_daemon_that_knows_none_of_them(
    daemons: Daemons, tmp_path: Path
) -> None:
    daemons.start()
    with Client(tmp_path, timeout=60) as client:
        client.submit("double", np.ones(3)).result(60)
        first = client.submit("wait", np.ones(3))
        second = client.submit("wait", np.ones(3), after=first)
        before = (first.id, second.id)
        daemons.stop()
        harness = daemons.start()
        assert harness.until(lambda: len(harness.engine.waiting) == 2)
        client.ping()
        assert (before, first.id, second.id) == ((2, 3), 1, 2)
        assert harness.engine.specs[1].after == (Dependency(1),)


def test_a_job_of_another_client_that_the_next_daemon_does_not_know_is_lost(
    daemons: Daemons, tmp_path: Path
) -> None:
    daemons.start()
    owner = Client(tmp_path, reconnect=0)
    number = owner.submit("wait").id
    with Client(tmp_path, timeout=60) as other:
        job = other.job(number)
        daemons.stop()
        daemons.start()
        with pytest.raises(InputMissing, match=f"no job {number}"):
            job.result(60)
    owner.close()


def test_memory_that_cannot_be_passed_on_is_a_lost_input(daemons: Daemons, tmp_path: Path) -> None:
    daemons.start()
    with Client(tmp_path, timeout=60) as client:
        held = [client.empty(3) for _ in range(MAX_KEPT_SEGMENTS)]
        x = client.empty(3, "float64")
        del held
        job = client.submit("wait", x)
        daemons.stop()
        daemons.start()
        with pytest.raises(TryAgain, match="job 1 is lost: the job's shared memory"):
            job.result(60)
        assert client.submit("double", x).result(60).shape == (3,)
