"""Priorities, dependencies, retries and times of jobs of the embedded engine."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

import pytest
from gated_workload import Gate

from hetsched.client.job import Job
from hetsched.config import parse
from hetsched.errors import InputMissing, JobFailed, UsageError
from hetsched.job import Queued, Running
from hetsched.local import Local

MACHINE = """
[[device]]
kind = "emulated"
name = "core0"
clock = "virtual"
compute = { unit = "20us" }
"""


class Bench:
    """A Local whose first job waits until `open_gate`, so that others queue behind it."""

    def __init__(self, local: Local, folder: Path) -> None:
        self.local = local
        self.folder = folder
        self.gate = Gate(folder / "gate")
        self.first = self.submit("first", gate=str(self.gate.path))

    def submit(self, name: str = "", **options: Any) -> Job:
        journal = str(self.folder / "journal")
        return self.local.submit("gated_workload:Gated", journal=journal, name=name, **options)

    def submit_until_accepted(self, name: str) -> Job:
        """Submit a job with a deadline that hasn't passed by then, however slow the machine is."""
        for seconds in (0.2, 2.0, 20.0):
            with contextlib.suppress(UsageError):
                return self.submit(name, deadline=time.time() + seconds)
        raise AssertionError("a deadline in the future is refused")

    def failing(self, attempts: int, **options: Any) -> Job:
        path = self.folder / "failures"
        path.write_text("x" * attempts)
        return self.submit("failing", failures=str(path), **options)

    def open_gate(self) -> None:
        self.gate.open()

    def computed(self) -> list[str]:
        return (self.folder / "journal").read_text().split()


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with Local(config=parse(MACHINE, "test"), learn=False) as local:
        bench = Bench(local, tmp_path)
        yield bench
        bench.gate.close()


def test_larger_priorities_run_first_and_equal_ones_in_order(bench: Bench) -> None:
    jobs = [bench.submit("a"), bench.submit("b", priority=-1), bench.submit("c", priority=7)]
    jobs += [bench.submit("d")]

    bench.open_gate()
    for job in jobs:
        job.result(60)

    assert bench.computed() == ["first", "c", "a", "d", "b"]


def test_a_job_says_what_it_waits_for(bench: Bench) -> None:
    second, third = bench.submit("a"), bench.submit("b")
    after = bench.submit("c", after=[second, third])

    assert second.progress() == Queued(second.id, 1, "resources")
    assert third.progress() == Queued(third.id, 2, "priority")
    assert after.progress() == Queued(after.id, 3, f"after {second.id}, {third.id}")
    bench.open_gate()


def test_a_job_runs_after_others_whatever_its_priority(bench: Bench) -> None:
    second = bench.submit("a", priority=-5)
    third = bench.submit("b", priority=5, after=second)

    bench.open_gate()
    third.result(60)

    assert bench.computed() == ["first", "a", "b"]


def test_a_job_whose_condition_can_no_longer_be_met_fails_and_takes_its_own_along(
    bench: Bench,
) -> None:
    second = bench.submit("a")
    third = bench.submit("b", after=second)
    fourth = bench.submit("c", after=f"{third.id}:fail")

    second.cancel()
    bench.open_gate()

    fourth.result(60)
    with pytest.raises(CancelledError):
        second.result(60)
    with pytest.raises(JobFailed, match=f"only if job {second.id} succeeds, but job {second.id}"):
        third.result(60)
    assert bench.computed() == ["first", "c"]


def test_a_job_cannot_run_after_one_that_never_was(bench: Bench) -> None:
    with pytest.raises(InputMissing, match="after: there is no job 99"):
        bench.submit("a", after=99)
    bench.open_gate()


def test_a_failed_job_is_run_again_and_its_report_says_so(bench: Bench) -> None:
    states: list[Any] = []
    job = bench.failing(2, retries=2, follow=states.append)

    bench.open_gate()
    job.result(60)

    assert job.report is not None
    notes = [note for note in job.report.notes if note.startswith("attempt ")]
    assert [note.split(" failed: ")[0] for note in notes] == ["attempt 1", "attempt 2"]
    assert "one of the failures that were asked for" in notes[0]
    reasons = [state.reason.split(": ")[0] for state in states if isinstance(state, Queued)]
    assert reasons[-2:] == ["retry 1 of 2", "retry 2 of 2"]


def test_a_job_fails_when_it_has_no_retries_left(bench: Bench) -> None:
    job = bench.failing(3, retries=1)

    bench.open_gate()

    with pytest.raises(JobFailed, match="one of the failures that were asked for"):
        job.result(60)
    assert bench.computed() == ["first", "failing", "failing"]


def test_a_job_that_runs_longer_than_its_timeout_fails(bench: Bench) -> None:
    bench.open_gate()
    bench.first.result(60)
    bench.gate.shut()
    has_expired = threading.Event()

    def watch(state: Any) -> None:
        if isinstance(state, Running):
            bench.local._loop.call_later(0.3, has_expired.set)

    job = bench.submit("slow", gate=str(bench.gate.path), timeout=0.2, follow=watch)
    next_job = bench.submit("next")

    assert has_expired.wait(60)  # later timers run later
    bench.open_gate()  # the chunk that was sent ends; nothing more is sent

    with pytest.raises(JobFailed, match=f"job {job.id} ran longer than its timeout of 0.2 s"):
        job.result(60)
    next_job.result(60)


def test_a_waiting_job_fails_at_its_deadline_while_another_one_runs(bench: Bench) -> None:
    job = bench.submit_until_accepted("late")

    with pytest.raises(JobFailed, match=f"job {job.id}: its deadline passed while it was waiting"):
        job.result(60)

    assert not bench.first.done()
    bench.open_gate()


def test_a_held_job_is_the_last_one_left_and_is_dropped_at_the_end(bench: Bench) -> None:
    held = bench.submit("held", hold=True)
    later = bench.submit("later")

    bench.open_gate()
    later.result(60)

    assert held.progress().reason == "held"  # type: ignore[union-attr]


def test_jobs_of_a_local_are_held_released_and_prioritized(bench: Bench) -> None:
    held, last = bench.submit("held", hold=True), bench.submit("last")

    assert bench.local.release(held.id)
    assert not bench.local.release(held.id)
    assert bench.local.prioritize(last.id, 3)
    assert bench.local.hold(held.id)
    with pytest.raises(UsageError, match="job 1 is running; only a waiting job can be held"):
        bench.local.hold(bench.first.id)
    with pytest.raises(UsageError, match="priority: 20 should be an integer"):
        bench.local.prioritize(last.id, 20)
    bench.open_gate()
    last.result(60)
    bench.local.release(held.id)
    held.result(60)

    assert bench.computed() == ["first", "last", "held"]
