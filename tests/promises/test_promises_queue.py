"""Order, holds, dependencies, retries, deadlines and quotas of the queue."""

from __future__ import annotations

import datetime
from concurrent.futures import CancelledError, wait
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from served import CORES, Daemon, Gate, computes, refused, serving, until, word

import hetsched

TOY = "toys:Toy"


class Line:
    """Jobs behind one that waits at a gate. Each writes its name when it runs."""

    def __init__(self, client: hetsched.Client, gate: Gate) -> None:
        self.client = client
        self.log = gate.path.with_name("log")
        self.gate = gate
        self.first = client.submit(TOY, units=1, gate=str(self.gate.path))
        computes(self.first)
        self.jobs: list[hetsched.Job] = []

    def add(self, name: str, **options: Any) -> hetsched.Job:
        job = self.client.submit(TOY, units=1, log=str(self.log), name=name, **options)
        self.jobs.append(job)
        return job

    def order(self) -> str:
        """Open the gate; return the names in the order in which the jobs ran."""
        self.gate.open()
        assert not wait([self.first, *self.jobs], 60).not_done
        return "".join(self.log.read_text().split())

    def reason(self, job: hetsched.Job) -> str:
        state: Any = self.client.show(job.id)
        return str(state.reason)


@pytest.fixture
def line(client: hetsched.Client, gate: Gate) -> Line:
    return Line(client, gate)


def test_jobs_run_by_priority_and_then_by_age(line: Line) -> None:
    for name, priority in (("c", 0), ("e", -5), ("a", 10), ("d", 0), ("b", 3)):
        line.add(name, priority=priority)
    assert line.order() == "abcde"


def test_a_held_job_waits_until_it_is_released(line: Line) -> None:
    b, a = line.add("b", hold=True), line.add("a")
    line.gate.open()
    a.exception(60)
    assert (word(b), line.reason(b)) == ("queued", "held")
    line.client.release(b.id)
    assert line.order() == "ab"


def test_a_job_runs_after_others_whatever_its_priority(line: Line) -> None:
    a = line.add("a", priority=-5)
    line.add("b", priority=19, after=a)
    line.add("c", priority=5, after=f"{a.id}:any")
    assert line.order() == "abc"


def test_a_job_that_can_no_longer_follow_fails_and_so_do_those_behind_it(line: Line) -> None:
    doomed = line.add("x")
    needs = line.add("y", after=doomed)
    behind = line.add("z", after=needs)
    line.add("f", after=f"{doomed.id}:fail")
    doomed.cancel()
    for job in (needs, behind):
        with refused(1, str(job.id)):
            job.result(60)
    assert line.order() == "f"


def test_cancelling_all_ends_all(line: Line) -> None:
    jobs = [line.first, line.add("a"), line.add("b", hold=True)]
    assert set(line.client.cancel_all()) >= {job.id for job in jobs}
    line.gate.open()
    for job in jobs:
        with pytest.raises(CancelledError):
            job.result(60)


def test_only_waiting_jobs_change_places(line: Line) -> None:
    with refused(2):
        line.client.hold(line.first.id)
    with refused(2):
        line.client.prioritize(line.first.id, 3)
    assert line.add("a").id
    line.order()
    with refused(2):
        line.client.release(line.first.id)


def test_a_failed_job_is_retried_as_often_as_asked(engine: Any, tmp_path: Path) -> None:
    failures = tmp_path / "failures"
    for count, retries in ((1, 2), (2, 1)):
        failures.write_text("x" * count)
        job = engine.submit(
            "toys:Faulty", np.ones((1, 4)), units=1, retries=retries, failures=str(failures)
        )
        if count <= retries:
            assert (job.result(60) == 3).all()
        else:
            with refused(1, "one of the failures"):
                job.result(60)


def test_an_attempt_may_not_run_longer_than_its_timeout(engine: Any) -> None:
    job = engine.submit("toys:Slow", units=3000, milliseconds=20, timeout=0.3)
    with refused(1, "timeout"):
        job.result(60)


def test_a_job_past_its_deadline_fails_waiting_or_running(line: Line) -> None:
    soon = datetime.datetime.now() + datetime.timedelta(seconds=0.3)
    job = line.add("x", deadline=soon)
    with refused(1, "deadline"):
        job.result(60)
    line.add("a")
    assert line.order() == "a"


def test_a_job_cannot_run_after_one_that_never_was(engine: Any) -> None:
    with refused(66, "no job 999999"):
        engine.submit(TOY, units=1, after=999999)


def test_a_report_says_which_runs_failed(engine: Any, tmp_path: Path) -> None:
    failures = tmp_path / "failures"
    failures.write_text("x")
    job = engine.submit("toys:Faulty", units=1, retries=1, failures=str(failures))
    job.result(60)
    assert any(note.startswith("run 1 failed: ") for note in job.report.notes)


def test_retry_runs_an_ended_job_under_a_new_number(client: hetsched.Client) -> None:
    job = client.submit("fft", batch="2x8x8", label="again")
    job.result(60)
    again = client.job(client.retry(job.id))
    assert again.id > job.id
    assert again.result(60).shape == (2, 8, 8)
    with refused(66, "submit it again"):
        volatile = client.submit("fft", np.ones((1, 8, 8)))
        volatile.result(60)
        client.retry(volatile.id)


def test_a_full_queue_refuses_and_takes_jobs_again() -> None:
    with serving("[queue]\nlimit = 3\n" + CORES) as daemon, daemon.client() as client:
        jobs = [client.submit(TOY, units=1, hold=True) for _ in range(3)]
        with refused(75, "queue"):
            client.submit(TOY, units=1)
        ended = daemon.call("submit", "fft", "--batch", "1x8x8")
        assert ended.code == 75
        jobs[0].cancel()
        until(lambda: word(jobs[0]) == "failed")
        assert client.submit(TOY, units=1).exception(60) is None


def test_ended_jobs_can_be_forgotten(daemon: Daemon, client: hetsched.Client) -> None:
    job = client.submit("fft", batch="1x8x8")
    job.result(60)
    assert job.id not in client.clean(older=3600)
    assert job.id in client.clean()
    assert daemon.call("show", str(job.id)).code == 66
