"""Clients that watch events: numbered, droppable, never in anyone's way."""

from __future__ import annotations

from hetsched.daemon import commands as do
from hetsched.daemon.records import JobEntry, Requester
from hetsched.daemon.watchers import Watchers
from hetsched.job import Done, JobReport, JobSpec, JobState, Queued, Running
from hetsched.transport.messages import JobEvent

CLIENT = Requester(b"a", 7, session=1)


def entry(job: int, state: JobState | None = None) -> JobEntry:
    spec = JobSpec(workload="w", params={})
    made = JobEntry(job, spec, CLIENT, False, 0.0)
    made.job, made.state = job, state or Queued(job, 0)
    return made


def done(job: int) -> Done:
    return Done(job, JobReport(job=job, state="done", workload="w", load=1))


def events(commands: list[do.Command]) -> list[tuple[int, JobState, bool]]:
    sent = []
    for command in commands:
        assert isinstance(command, do.SendReply)
        answer = command.reply.answer
        assert isinstance(answer, JobEvent)
        sent.append((answer.sequence, answer.state, command.droppable))
    return sent


def test_the_present_states_come_first_and_then_each_new_one() -> None:
    watchers = Watchers()
    first, second = entry(1), entry(2, done(2))

    start = watchers.add(CLIENT, [first, second])
    first.state = Running(1, "computing")

    assert events(start) == [(1, Queued(1, 0), False), (2, done(2), False)]
    assert events(watchers.announce(first)) == [(3, Running(1, "computing"), True)]


def test_the_last_event_of_a_job_is_not_droppable_and_the_last_job_ends_the_watch() -> None:
    watchers = Watchers()
    jobs = [entry(1), entry(2)]
    watchers.add(CLIENT, jobs)

    for job in jobs:
        job.state = done(job.job)
        assert events(watchers.announce(job)) == [(2 + job.job, job.state, False)]

    assert watchers.count(1) == 0


def test_jobs_that_were_not_asked_for_are_not_announced() -> None:
    watchers = Watchers()
    watchers.add(CLIENT, [entry(1)])

    assert watchers.announce(entry(2)) == []


def test_those_who_watch_all_jobs_may_miss_any_event() -> None:
    watchers = Watchers()
    assert watchers.add(CLIENT, []) == []

    assert events(watchers.announce(entry(5, done(5)))) == [(1, done(5), True)]
    assert watchers.count(1) == 1

    watchers.remove_session(1)
    assert watchers.announce(entry(6)) == []


def test_a_watch_of_ended_jobs_is_over_at_once() -> None:
    watchers = Watchers()

    watchers.add(CLIENT, [entry(1, done(1))])

    assert watchers.count(1) == 0
