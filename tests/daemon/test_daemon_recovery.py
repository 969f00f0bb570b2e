"""What becomes of the jobs of earlier daemons."""

from __future__ import annotations

from typing import Any

import pytest
from daemon_story import Story, refused, report, states

from hetsched.daemon import commands as do
from hetsched.daemon.jobs.open_checkpoints import OpenCheckpoint
from hetsched.errors import ErrorRecord
from hetsched.job import ArenaRef, Done, Failed, FileOut, FileRef, JobSpec, Queued, Running
from hetsched.store.journal.records import (
    JobEnded,
    JobStarted,
    JournalContents,
    JournaledJob,
)
from hetsched.transport import messages as say

VOLATILE = JobSpec(workload="w", params={}, inputs={"": ArenaRef(7, (3,), "float32")})
FILES = JobSpec(
    workload="w",
    params={},
    inputs={"": FileRef("/x.npy")},
    outputs={"": FileOut("/y.npy")},
)


@pytest.fixture
def story() -> Story:
    return Story()


def job(number: int, spec: JobSpec = FILES, **more: Any) -> JournaledJob:
    durable = spec is not VOLATILE
    return JournaledJob(number=number, spec=spec, submitted_at=0.0, durable=durable, **more)


def ended(number: int, spec: JobSpec = FILES) -> JournaledJob:
    state = Done(number, report(number))
    return job(number, spec, stage="done", state=state, ended_at=1.0, client_id=f"k{number}")


def restored(
    story: Story,
    *jobs: JournaledJob,
    errors: dict[int, ErrorRecord | None] | None = None,
    checkpoints: dict[int, OpenCheckpoint] | None = None,
) -> list[do.Command]:
    open_jobs = tuple(job for job in jobs if job.state is None)
    ended_jobs = tuple(job for job in jobs if job.state is not None)
    contents = JournalContents(100, 1000, open_jobs, ended_jobs)
    return story.core.restore(contents, errors or {}, story.now, checkpoints)


def shown(story: Story, number: int) -> object:
    (state,) = states(story.ask(story.hello(90), say.Show(number)))
    return state


def test_a_durable_job_continues_with_its_attempts(story: Story) -> None:
    terms = {"attempts": 1, "failures": 2, "priority": 3, "held": True}
    (start,) = restored(story, job(5, **terms))
    assert isinstance(start, do.SubmitJob) and start.readmission is not None
    assert (start.number, start.readmission.attempts, start.readmission.failures) == (5, 1, 2)
    assert (start.spec.priority, start.spec.hold) == (3, True)
    assert shown(story, 5) == Queued(5, 0, "held")


def test_a_start_after_a_crash_is_written_at_once(story: Story) -> None:
    (start,) = restored(story, job(5, attempts=1))
    assert isinstance(start, do.SubmitJob)
    (write,) = story.core.on_job_state(start.ticket, Running(5, "planning"), {}, story.now)
    assert isinstance(write, do.WriteJournal) and write.urgent
    assert isinstance(write.records[0], JobStarted) and write.records[0].attempt == 2


@pytest.mark.parametrize(("is_progress", "attempts"), [(True, 0), (False, 2)])
def test_a_job_continues_from_its_checkpoint(
    story: Story, is_progress: bool, attempts: int
) -> None:
    checkpoint = OpenCheckpoint("/job.ckpt", 40, is_progress)
    (start,) = restored(story, job(5, attempts=2), checkpoints={5: checkpoint})

    assert isinstance(start, do.SubmitJob) and start.readmission is not None
    assert (start.spec.resume, start.readmission.attempts) == ("/job.ckpt", attempts)


def test_an_attempt_that_got_further_does_not_count_as_failed(story: Story) -> None:
    checkpoint = OpenCheckpoint("/job.ckpt", 40, is_progress=True)
    commands = restored(story, job(5, attempts=3), job(6, attempts=3), checkpoints={5: checkpoint})

    starts = [command.number for command in commands if isinstance(command, do.SubmitJob)]
    assert starts == [5]


def test_used_retries_are_in_the_journal(story: Story) -> None:
    (start,) = restored(story, job(5))
    assert isinstance(start, do.SubmitJob)
    story.core.on_job_state(start.ticket, Running(5, "computing"), {}, story.now)
    waits = Queued(5, 0, "retry 1 of 2: a reason", failures=1)
    (write,) = story.core.on_job_state(start.ticket, waits, {}, story.now)
    assert isinstance(write, do.WriteJournal) and isinstance(write.records[0], JobStarted)
    assert (write.records[0].attempt, write.records[0].failures) == (0, 1)


def test_a_job_that_ended_three_daemons_fails(story: Story) -> None:
    write, remember = restored(story, job(5, attempts=3))
    assert isinstance(remember, do.RememberJob)
    assert isinstance(write, do.WriteJournal) and isinstance(write.records[0], JobEnded)
    story.written([write])
    state = shown(story, 5)
    assert isinstance(state, Failed) and state.error.code == 1
    assert "each of the 3 times" in state.error.message


def test_a_job_that_the_engine_accepts_no_more_fails_with_the_reason(story: Story) -> None:
    (start,) = restored(story, job(5))
    assert isinstance(start, do.SubmitJob)
    error = ErrorRecord(66, "/x.npy: No such file")
    story.written(story.core.on_engine_reply(start.ticket, error, story.now))
    state = shown(story, 5)
    assert isinstance(state, Failed) and state.error == error


def test_a_job_whose_result_was_published_is_done(story: Story) -> None:
    write, remember = restored(story, job(5, stage="publishing"), errors={5: None})
    assert isinstance(remember, do.RememberJob) and isinstance(remember.state, Done)
    story.written([write])
    state = shown(story, 5)
    assert isinstance(state, Done) and state.report.outputs == {"": "/y.npy"}
    assert state.lost == ""


def test_a_job_whose_result_cannot_be_published_fails(story: Story) -> None:
    error = ErrorRecord(73, "/y.npy: exists")
    write, _ = restored(story, job(5, stage="publishing"), errors={5: error})
    story.written([write])
    state = shown(story, 5)
    assert isinstance(state, Failed) and state.error == error


def test_an_ended_job_is_remembered_with_its_files(story: Story) -> None:
    (remember,) = restored(story, ended(5))
    assert isinstance(remember, do.RememberJob)
    state = shown(story, 5)
    assert isinstance(state, Done) and state.lost == ""


def test_a_result_in_memory_is_lost_and_says_how_to_run_the_job_again(story: Story) -> None:
    restored(story, ended(5, JobSpec(workload="w", params={})))
    state = shown(story, 5)
    assert isinstance(state, Done) and "hetsched retry 5" in state.lost


def test_the_explanation_of_an_earlier_daemons_job_is_not_kept(story: Story) -> None:
    restored(story, ended(5))
    assert refused(story.ask(story.hello(1), say.Explain(5))).code == 66


def test_a_submission_is_recognised_by_its_key_after_a_restart(story: Story) -> None:
    restored(story, ended(5))
    accepted, _ = story.ask(story.hello(1), say.Submit(FILES, key="k5"))
    assert isinstance(accepted, do.SendReply) and accepted.reply.answer == say.Accepted(
        5, "durable"
    )


def test_a_volatile_job_waits_for_its_client_to_pass_its_arrays(story: Story) -> None:
    assert restored(story, job(5, VOLATILE, client_id="k")) == [do.ExpectJob(5)]
    token = story.hello(1)
    story.core.on_adopted(1, 70, 1 << 16)
    again = JobSpec(workload="w", params={}, inputs={"": ArenaRef(70, (3,), "float32")})
    commands = story.ask(token, say.Submit(again, key="k"))
    (start,) = [command for command in commands if isinstance(command, do.SubmitJob)]
    assert (start.number, start.spec.inputs) == (5, again.inputs)
    assert story.core.next_tick() is None


def test_arrays_that_are_not_the_clients_do_not_count(story: Story) -> None:
    restored(story, job(5, VOLATILE, client_id="k"))
    assert refused(story.ask(story.hello(1), say.Submit(VOLATILE, key="k"))).code == 65


def test_a_volatile_job_whose_client_stays_away_fails_with_the_reason(story: Story) -> None:
    restored(story, job(5, VOLATILE))
    assert story.core.next_tick() == story.now + 60
    story.written(story.core.on_tick(story.now + 60))
    state = shown(story, 5)
    assert isinstance(state, Failed) and state.error.code == 75
    assert "input lost" in state.error.message


def test_a_job_that_waits_for_its_client_can_be_cancelled(story: Story) -> None:
    restored(story, job(5, VOLATILE))
    story.ask(story.hello(1), say.Cancel(5))
    state = shown(story, 5)
    assert isinstance(state, Failed) and state.error.code == 130
    assert story.core.next_tick() is None


def test_jobs_are_listed_by_number_though_ended_ones_are_restored_first(story: Story) -> None:
    restored(story, job(1), job(4), ended(2), ended(3))
    (read,) = story.ask(story.hello(1), say.Status())
    assert isinstance(read, do.ReadPositions) and read.jobs == (4, 3, 2, 1)
    (read,) = story.ask(story.hello(2), say.Status(before=3))
    assert isinstance(read, do.ReadPositions) and read.jobs == (2, 1)
