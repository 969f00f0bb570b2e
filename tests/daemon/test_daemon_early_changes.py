"""Changes of an earlier daemon's job that the engine doesn't have yet take effect at once."""

from __future__ import annotations

import pytest
from daemon_story import OWNER, Story, refused

from hetsched.daemon import commands as do
from hetsched.errors import CantCreate, ErrorRecord
from hetsched.job import ArenaRef, Failed, FileRef, JobSpec, Queued
from hetsched.store.journal.records import JobChanged, JournalContents, JournaledJob
from hetsched.transport import messages as say

FILES = JobSpec(workload="w", params={}, inputs={"": FileRef("/x.npy")})
VOLATILE = JobSpec(workload="w", params={}, inputs={"": ArenaRef(7, (3,), "float32")})


@pytest.fixture
def story() -> Story:
    return Story()


def restored(story: Story, spec: JobSpec = FILES, held: bool = False) -> list[do.Command]:
    job = JournaledJob(
        number=5, spec=spec, submitted_at=0.0, durable=spec is FILES, held=held, client_id="k"
    )
    return story.core.restore(JournalContents(100, 1000, (job,), ()), {}, story.now)


def answer(commands: list[do.Command]) -> say.Answer:
    (reply,) = [command for command in commands if isinstance(command, do.SendReply)]
    return reply.reply.answer


@pytest.mark.parametrize("held", [False, True])
def test_a_hold_during_the_check_is_confirmed_and_reaches_the_engine(
    story: Story, held: bool
) -> None:
    (start,) = restored(story, held=not held)
    assert isinstance(start, do.SubmitJob)
    request = say.Hold(5) if held else say.Release(5)
    reason = "held" if held else ""
    assert answer(story.ask(story.hello(1), request)) == say.Changed(True, Queued(5, 0, reason))
    assert story.core.on_engine_reply(start.ticket, 5, story.now) == [do.AlterJob(5, 0, held)]


def test_a_priority_during_the_check_is_written_and_reaches_the_engine(story: Story) -> None:
    (start,) = restored(story)
    assert isinstance(start, do.SubmitJob)
    token = story.hello(1)
    envelope = say.Envelope(token, 1, say.Prioritize(5, 7))
    (write,) = story.core.on_request(b"", OWNER, envelope, story.now)
    assert isinstance(write, do.WriteJournal) and write.urgent
    assert write.records == (JobChanged(5, 7, False),)
    assert story.core.on_engine_reply(start.ticket, 5, story.now) == [do.AlterJob(5, 7, False)]


def test_a_change_that_changes_nothing_does_not_reach_the_engine(story: Story) -> None:
    (start,) = restored(story)
    assert isinstance(start, do.SubmitJob)
    assert answer(story.ask(story.hello(1), say.Release(5))) == say.Changed(False, Queued(5, 0))
    assert story.core.on_engine_reply(start.ticket, 5, story.now) == []


def test_a_job_cancelled_during_the_check_is_cancelled_when_the_engine_has_it(
    story: Story,
) -> None:
    (start,) = restored(story)
    assert isinstance(start, do.SubmitJob)
    story.ask(story.hello(1), say.Cancel(5))
    assert story.core.on_engine_reply(start.ticket, 5, story.now) == [do.CancelJob(5)]


def test_a_job_cancelled_during_a_check_that_fails_counts_as_cancelled(story: Story) -> None:
    (start,) = restored(story)
    assert isinstance(start, do.SubmitJob)
    token = story.hello(1)
    story.ask(token, say.Cancel(5))
    error = ErrorRecord(66, "/x.npy: No such file")
    story.written(story.core.on_engine_reply(start.ticket, error, story.now))
    shown = answer(story.ask(token, say.Show(5)))
    assert isinstance(shown, say.State) and isinstance(shown.state, Failed)
    assert shown.state.error.code == 130


def test_a_job_that_waits_for_its_client_can_be_held(story: Story) -> None:
    restored(story, VOLATILE)
    token = story.hello(1)
    held = say.Changed(True, Queued(5, 0, "held"))
    assert answer(story.ask(token, say.Hold(5))) == held
    story.core.on_adopted(1, 7, 1 << 16)
    commands = story.ask(token, say.Submit(VOLATILE, key="k"))
    (start,) = [command for command in commands if isinstance(command, do.SubmitJob)]
    assert start.spec.hold
    assert story.core.on_engine_reply(start.ticket, 5, story.now) == []


def test_a_job_that_failed_its_check_can_not_be_held(story: Story) -> None:
    (start,) = restored(story)
    assert isinstance(start, do.SubmitJob)
    error = ErrorRecord(66, "/x.npy: No such file")
    story.written(story.core.on_engine_reply(start.ticket, error, story.now))
    assert refused(story.ask(story.hello(1), say.Hold(5))).code == 2


def test_a_job_whose_end_is_not_on_disk_yet_has_ended_for_those_who_change_it(
    story: Story,
) -> None:
    (start,) = restored(story)
    assert isinstance(start, do.SubmitJob)
    token = story.hello(1)
    error = ErrorRecord(66, "/x.npy: No such file")
    story.core.on_engine_reply(start.ticket, error, story.now)
    refusal = refused(story.ask(token, say.Release(5)))
    assert (refusal.code, "already ended: failed" in refusal.message) == (2, True)


def test_a_change_that_can_not_be_written_says_so_and_is_written_later(story: Story) -> None:
    restored(story)
    envelope = say.Envelope(story.hello(1), 1, say.Hold(5))
    (write,) = story.core.on_request(b"", OWNER, envelope, story.now)
    assert isinstance(write, do.WriteJournal) and write.then is not None
    refusal, again = story.core.on_written(write.then, CantCreate("no room"), story.now)
    assert refused([refusal]).code == 73
    assert "job 5 was changed, but that can't be written" in refused([refusal]).message
    assert again == do.WriteJournal(write.records)
