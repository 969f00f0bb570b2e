"""Every job that is submitted is answered, whatever the journal does meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from msgspec.structs import replace

from hetsched.config import parse
from hetsched.engine import Engine
from hetsched.errors import ErrorRecord
from hetsched.job import Dependency, Failed, JobSpec
from hetsched.jobs.durability import Durability
from hetsched.jobs.followers import Followers
from hetsched.jobs.table import JobRecord, JobTable, Limits, Submitter
from hetsched.store.journal_records import NumberBlocks
from hetsched.transport.arena import Arena
from hetsched.transport.loop import Loop

MACHINE = '[[device]]\nkind = "emulated"\nclock = "virtual"\ncompute = { unit = "20us" }\n'
SPEC = JobSpec(workload="fft", params={"batch": "1x8x8"}, hold=True)


class SlowJournal:
    """Writes nothing, and answers when the test says so. `error`: raised by the next write."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.unanswered: list[Callable[[None], None]] = []

    def write(self, records: Any, then: Any = lambda error: None, urgent: bool = False) -> None:
        error, self.error = self.error, None
        if error is not None:
            raise error
        self.unanswered.append(then)

    def answer(self) -> None:
        while self.unanswered:
            self.unanswered.pop(0)(None)


class Queue(Submitter):
    """An engine that only checks, queues and ends jobs: its devices aren't started."""

    def __init__(self) -> None:
        self.loop, self.journal, self.arena = Loop(), SlowJournal(), Arena(1 << 20)
        self.table = JobTable(Limits(), NumberBlocks(1, 1000))
        followers, journal = Followers(self.loop), cast(Any, self.journal)
        durability = Durability(self.table, followers, self.arena, self.loop, journal)
        config = parse(MACHINE, "test")
        self.engine = Engine(config, self.loop, self.arena, durability, models_path=None)
        self.answers: list[ErrorRecord | None] = []

    def submit(self, spec: JobSpec, *, checks: bool = True, is_durable: bool = True) -> JobRecord:
        """Return the job, by default once the engine has checked it."""
        job, before = JobRecord(self.table.numbers.take(), spec), len(self.answers)
        job.is_durable = is_durable
        job.submitters.append(self)
        self.table.add(job)
        self.engine.admit(job)
        if checks:
            self.until(lambda: len(self.answers) > before or self.journal.unanswered)
        return job

    def on_accepted(self, job: JobRecord) -> None:
        self.answers.append(None)

    def on_refused(self, error: ErrorRecord) -> None:
        self.answers.append(error)

    def until(self, condition: Callable[[], object]) -> None:
        def look() -> None:
            self.loop.stop() if condition() else self.loop.call_later(0.001, look)

        self.loop.call_soon(look)
        self.loop.run_forever()

    def write(self) -> None:
        """Let the journal answer, and wait for what follows."""
        self.journal.answer()
        self.until(lambda: len(self.answers) == self.table.numbers.last)

    def drain(self) -> None:
        drained: list[bool] = []
        self.engine.drain(lambda: drained.append(True))
        self.until(lambda: self.journal.answer() or drained)
        self.journal.answer()

    def close(self) -> None:
        self.engine.close()
        self.arena.close()
        self.loop.close()


@pytest.fixture
def queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Queue]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    queue = Queue()
    yield queue
    queue.close()


def test_an_error_while_a_job_is_accepted_refuses_it_and_no_other(queue: Queue) -> None:
    queue.journal.error = ZeroDivisionError("in the journal")

    queue.submit(SPEC)
    queue.submit(SPEC)
    queue.write()

    assert queue.answers == [ErrorRecord(70, "ZeroDivisionError: in the journal"), None]
    queue.drain()


def test_an_error_after_a_job_was_accepted_does_not_refuse_it(queue: Queue) -> None:
    def fail() -> None:
        raise ZeroDivisionError("in a callback")

    queue.engine.on_idle = fail

    job = queue.submit(SPEC, is_durable=False)

    assert queue.answers == [None]
    assert job.number in queue.table.unfinished
    queue.engine.on_idle = lambda: None
    queue.drain()
    assert isinstance(job.state, Failed)


def test_a_job_that_fails_at_once_while_the_engine_stops_ends(queue: Queue) -> None:
    first = queue.submit(SPEC)
    queue.write()
    later = queue.submit(replace(SPEC, after=(Dependency(first.number),)))
    queue.engine.cancel(first)

    queue.drain()

    assert isinstance(later.state, Failed)
    assert "but job 1 was cancelled" in later.state.error.message


def test_a_check_in_progress_is_given_up_when_the_engine_stops(queue: Queue) -> None:
    queue.submit(SPEC, checks=False)

    queue.drain()

    assert [error and error.code for error in queue.answers] == [75]
