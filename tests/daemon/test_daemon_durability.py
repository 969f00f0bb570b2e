"""What is on disk before clients hear of it, keys of submissions, job numbers."""

from __future__ import annotations

import pytest
from daemon_story import MIB, Story, refused, report, states

from hetsched.daemon import commands as do
from hetsched.errors import CantCreate, ErrorRecord
from hetsched.job import ArenaOut, ArenaRef, Done, Failed, JobSpec, Queued, Running
from hetsched.store.arrays.publication import PreparedOutput
from hetsched.store.journal.records import JobAccepted, JobEnded, JobPublishing, JobStarted
from hetsched.transport import messages as say

DURABLE = JobSpec(workload="w", params={})
VOLATILE = JobSpec(workload="w", params={}, inputs={"": ArenaRef(7, (3,), "float32")})
PREPARED = (PreparedOutput(b"/tmp/.part", b"/tmp/y.npy", False, 1, 2, 3),)
FULL = CantCreate("journal.db: no room")


@pytest.fixture
def story() -> Story:
    return Story()


def checked(story: Story, token: str, spec: JobSpec = DURABLE, key: str = "") -> list[do.Command]:
    """What the core does when the engine accepts a new job."""
    (start,) = story.ask(token, say.Submit(spec, key=key))
    assert isinstance(start, do.SubmitJob)
    return story.core.on_engine_reply(start.ticket, start.number, story.now)


def with_segment(story: Story) -> str:
    """A session with segment 7."""
    token = story.hello(1)
    story.core.on_allocated(1, 7, 1 << 16)
    return token


def answers(commands: list[do.Command]) -> list[say.Answer]:
    return [command.reply.answer for command in commands if isinstance(command, do.SendReply)]


def records(commands: list[do.Command]) -> list[object]:
    return [r for c in commands if isinstance(c, do.WriteJournal) for r in c.records]


def test_a_durable_job_is_confirmed_once_it_is_on_disk(story: Story) -> None:
    (write,) = checked(story, story.hello(1))
    assert isinstance(write, do.WriteJournal) and write.urgent and write.then
    assert isinstance(write.records[0], JobAccepted) and write.records[0].durable
    (reply,) = answers(story.core.on_written(write.then, None, story.now))
    assert reply == say.Accepted(1, "durable")


def test_a_durable_jobs_states_wait_for_its_confirmation(story: Story) -> None:
    (write,) = checked(story, story.hello(1))
    assert isinstance(write, do.WriteJournal) and write.then
    started = story.core.on_job_state(1, Running(1, "computing"), {}, story.now)
    assert answers(started) == []
    confirmed = answers(story.core.on_written(write.then, None, story.now))
    assert confirmed == [say.Accepted(1, "durable"), say.State(Running(1, "computing"))]


def test_a_job_that_cannot_be_journalled_is_refused_and_cancelled(story: Story) -> None:
    token = story.hello(1)
    (write,) = checked(story, token, key="k")
    assert isinstance(write, do.WriteJournal) and write.then
    reply, cancel = story.core.on_written(write.then, FULL, story.now)
    assert refused([reply]).code == 73
    assert cancel == do.CancelJob(1)
    end = Failed(1, report(1), ErrorRecord(130, "cancelled"))
    assert story.core.on_job_state(1, end, {}, story.now) == []
    assert refused(story.ask(token, say.Show(1))).code == 66
    assert isinstance(story.ask(token, say.Submit(DURABLE, key="k"))[0], do.SubmitJob)


def test_a_refused_job_that_had_ended_leaves_no_result(story: Story) -> None:
    (write,) = checked(story, story.hello(1))
    assert isinstance(write, do.WriteJournal) and write.then
    done = Done(1, report(1), {"Y": ArenaRef(9, (1,), "u1")})
    (end,) = story.core.on_job_state(1, done, {9: 65536}, story.now)
    assert isinstance(end, do.WriteJournal) and end.then
    assert [type(c) for c in story.core.on_written(write.then, FULL, story.now)] == [do.SendReply]
    assert story.core.on_written(end.then, FULL, story.now) == [do.ReleaseSegment(9)]
    assert story.core.ledger.open_jobs() == 0


def test_followers_see_the_end_of_a_durable_job_once_it_is_on_disk(story: Story) -> None:
    job = story.submit(story.hello(1))
    (write,) = story.core.on_job_state(job, Done(job, report(job)), {}, story.now)
    assert isinstance(write, do.WriteJournal) and write.urgent and write.then
    assert isinstance(write.records[0], JobEnded)
    assert states(story.core.on_written(write.then, None, story.now)) == [Done(job, report(job))]


def test_an_end_that_cannot_be_written_is_reported_and_written_later(story: Story) -> None:
    job = story.submit(story.hello(1))
    (write,) = story.core.on_job_state(job, Done(job, report(job)), {}, story.now)
    assert isinstance(write, do.WriteJournal) and write.then
    commands = story.core.on_written(write.then, FULL, story.now)
    assert states(commands) == [Done(job, report(job))]
    assert [type(record) for record in records(commands)] == [JobEnded]


def test_output_files_get_no_name_before_the_job_is_confirmed(story: Story) -> None:
    (write,) = checked(story, story.hello(1))
    assert isinstance(write, do.WriteJournal) and write.then
    assert story.core.on_outputs_prepared(1, PREPARED) == []
    confirmed = story.core.on_written(write.then, None, story.now)
    assert records(confirmed) == [JobPublishing(1, PREPARED)]
    assert story.written(confirmed)[-1] == do.ContinuePublishing(1)


def test_output_files_of_a_refused_job_are_discarded(story: Story) -> None:
    (write,) = checked(story, story.hello(1))
    assert isinstance(write, do.WriteJournal) and write.then
    story.core.on_outputs_prepared(1, PREPARED)
    refusal = story.core.on_written(write.then, FULL, story.now)
    assert do.ContinuePublishing(1, FULL) in refusal


def test_only_jobs_that_may_start_again_have_their_starts_counted(story: Story) -> None:
    job = story.submit(story.hello(1))
    (started,) = records(story.core.on_job_state(job, Running(job, "planning"), {}, story.now))
    assert isinstance(started, JobStarted) and started.attempt == 1
    assert records(story.core.on_job_state(job, Running(job, "computing"), {}, story.now)) == []
    (again,) = records(story.core.on_job_state(job, Queued(job, 0, "retry"), {}, story.now))
    assert isinstance(again, JobStarted) and again.attempt == 0


def test_the_same_key_is_the_same_job(story: Story) -> None:
    token = story.hello(1)
    checked(story, token, key="k")
    assert story.core.ledger.keys["k"].job == 1
    assert answers(story.ask(token, say.Submit(DURABLE, key="k"), 2)) == []
    job = story.core.ledger.jobs[1]
    commands = story.core.on_written(do.AcceptanceWritten(job.ticket), None, story.now)
    assert answers(commands) == [say.Accepted(1, "durable")] * 2


def test_an_ended_job_is_returned_for_its_id(story: Story) -> None:
    token = story.hello(1)
    spec = JobSpec(workload="w", params={}, id="mine")
    job = story.submit(token, spec)
    story.done(job)
    accepted, state = answers(story.ask(token, say.Submit(spec, key="other")))
    assert accepted == say.Accepted(job, "durable")
    assert isinstance(state, say.State) and isinstance(state.state, Done)


def test_another_request_with_a_known_id_is_refused(story: Story) -> None:
    token = story.hello(1)
    story.submit(token, JobSpec(workload="w", params={}, id="mine"))
    error = refused(story.ask(token, say.Submit(JobSpec(workload="v", params={}, id="mine"))))
    assert error.code == 65
    assert "id mine: job 1 has this id" in error.message


def test_a_known_id_with_another_array_for_the_result_is_refused(story: Story) -> None:
    tokens = [story.hello(session) for session in (1, 2)]
    specs = []
    for session in (1, 2):
        story.core.on_allocated(session, 10 + session, MIB)
        outputs = {"": ArenaOut(ArenaRef(10 + session, (1,), "u1"))}
        specs.append(JobSpec(workload="w", params={}, id="mine", outputs=outputs))
    story.submit(tokens[0], specs[0])
    error = refused(story.ask(tokens[1], say.Submit(specs[1])))
    assert error.code == 65
    assert "its result goes to the array that was passed as `out` then" in error.message
    (accepted, *_) = answers(story.ask(tokens[0], say.Submit(specs[0])))
    assert accepted == say.Accepted(1, "volatile")


def test_the_number_of_a_refused_job_is_used_again(story: Story) -> None:
    token = story.hello(1)
    (start,) = story.ask(token, say.Submit(DURABLE))
    assert isinstance(start, do.SubmitJob)
    story.core.on_engine_reply(start.ticket, ErrorRecord(65, "no"), story.now)
    (second,) = story.ask(token, say.Submit(DURABLE))
    assert isinstance(second, do.SubmitJob) and second.number == start.number


def test_a_durable_job_that_stops_with_the_daemon_stays_in_the_journal(story: Story) -> None:
    job = story.submit(story.hello(1))
    story.state(Running(job, "computing"))
    story.core.drain()
    end = Failed(job, report(job), ErrorRecord(75, "the daemon is stopping"))
    left = story.core.on_job_state(job, end, {}, story.now)
    assert [type(record) for record in records(left)] == [JobStarted]
    assert answers(left) == []


def test_a_volatile_job_that_stops_with_the_daemon_fails(story: Story) -> None:
    checked(story, with_segment(story), VOLATILE)
    story.core.drain()
    end = Failed(1, report(1), ErrorRecord(75, "the daemon is stopping"))
    assert states(story.core.on_job_state(1, end, {}, story.now)) == [end]
