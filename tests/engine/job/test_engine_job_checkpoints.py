"""Checkpoints of iterative jobs: when they are taken, and how jobs continue from them."""

from __future__ import annotations

from iterating_story import ROWS, IteratingStory
from job_story import DEVICES

from hetsched.engine.deadlines import DEFAULT_DEADLINES
from hetsched.engine.job import commands as do
from hetsched.engine.job.events import (
    AbortRequested,
    CheckpointFailed,
    CheckpointWritten,
    DeadlinePassed,
    RestoreFailed,
    StateCopied,
    StateRestored,
)
from hetsched.errors import Cancelled, CantCreate, DataError, TryAgain

EVERY = 300.0
"""Each event of a story takes a second."""


def begun() -> IteratingStory:
    return IteratingStory(checkpoint="/job.ckpt", every=EVERY).to_iterating()


def reported(story: IteratingStory, first: int, seconds: float = 0.0) -> IteratingStory:
    story.now += seconds
    for device in DEVICES:
        story.iterated(device, first)
    return story


def paused(iteration: int = 7) -> IteratingStory:
    """Paused for a checkpoint after `iteration`."""
    story = begun()
    for number in range(1, iteration + 1):
        reported(story, number, EVERY if number == iteration else 0.0)
    story.stopped(*DEVICES, iteration=iteration, reason="paused")
    return story.settled(iteration)


def test_devices_pause_once_when_a_checkpoint_is_due() -> None:
    story = reported(begun(), 1, EVERY / 2)
    assert "PauseEpoch" not in story.names
    assert "PauseEpoch" in reported(story, 2, EVERY / 2).names
    assert "PauseEpoch" not in reported(story, 3, EVERY).names


def test_the_state_is_copied_between_two_epochs() -> None:
    story = paused(7)
    assert story.commands == [do.SaveState(7, (0, 1), 0.5)]

    story.feed(StateCopied())

    assert (story.epoch.first, story.epoch.previous) == (8, (0, 1))


def test_no_epoch_begins_while_the_state_is_copied() -> None:
    story = paused(7).lost("cpu1")
    assert "StartEpoch" not in story.names
    story.joined("cpu1").prepared("cpu1")
    assert story.names == []

    assert story.feed(StateCopied()).epoch.devices == DEVICES


def test_the_next_one_is_due_an_interval_after_the_last_copy() -> None:
    story = paused(7).feed(StateCopied())
    assert "PauseEpoch" not in reported(story, 8, 2 * EVERY).names, "it is still being written"
    story.feed(CheckpointWritten(7, 1000))

    (written,) = story.iterations.history.history().checkpoints
    assert (written.iteration, written.nbytes) == (7, 1000)
    assert "PauseEpoch" not in reported(story, 9, 1.5 * EVERY).names, "a slow disk"
    assert "PauseEpoch" in reported(story, 10, EVERY).names


def test_a_failure_is_noted_and_the_job_goes_on() -> None:
    story = paused(7).feed(StateCopied())
    for _ in range(2):
        story.feed(CheckpointFailed(CantCreate("/job.ckpt: no room for 1 MiB")))

    note = "no checkpoint after iteration 7: /job.ckpt: no room for 1 MiB"
    assert story.only(do.LogMessage).text == note
    assert story.machine.record.notes == [note]
    assert story.state == "Iterating"


def test_a_job_that_ends_meanwhile_is_not_disturbed() -> None:
    story = paused(7).feed(StateCopied())
    story.stopped(*DEVICES, iteration=9, reason="converged", epoch=2).settled(9, 9)
    assert story.state == "Ended"
    assert story.feed(CheckpointWritten(7, 1000)).commands == []


def test_the_last_iteration_is_no_checkpoint() -> None:
    story = reported(begun(), 1, EVERY)
    story.stopped(*DEVICES, iteration=1, reason="converged").settled(1, 1)

    assert "SaveState" not in story.names
    assert "FinishJob" in story.names


def resumed() -> IteratingStory:
    return IteratingStory(resume="/job.ckpt").to_iterating()


def test_a_job_continues_after_the_checkpoint() -> None:
    story = resumed()
    assert story.only(do.RestoreState).path == "/job.ckpt"
    assert "StartEpoch" not in story.names

    story.feed(StateRestored(20, 0.25))

    assert (story.epoch.first, story.epoch.previous) == (21, ())
    assert (story.iterations.residual, story.iterations.continued_after) == (0.25, 20)
    assert story.machine.record.notes == ["continued after iteration 20, from /job.ckpt"]


def test_only_the_first_attempt_reads_the_checkpoint() -> None:
    story = resumed().feed(StateRestored(20, None)).lost(*DEVICES)
    story.settled(23)
    story.joined(*DEVICES)

    epoch = story.prepared(*DEVICES).epoch

    assert epoch.first == 24
    assert sum(epoch.rows.values()) == ROWS


def test_a_checkpoint_of_another_problem_fails_the_job() -> None:
    story = resumed().feed(RestoreFailed(DataError("/job.ckpt: checkpoint of another problem")))
    assert story.state == "Stopping"

    finish = story.fenced(*DEVICES).only(do.FinishJob)

    assert finish.error.code == 65


def start_over(story: IteratingStory) -> IteratingStory:
    """A kernel without memory stops the attempt; the next one is about to iterate."""
    story.failed("cpu0", "memory").fenced(*DEVICES)
    return story.to_iterating()


def test_another_attempt_waits_until_the_state_has_been_copied() -> None:
    story = start_over(paused(7))
    assert "StartEpoch" not in story.names

    assert story.feed(StateCopied()).epoch.first == 8


def test_a_copy_that_ends_between_two_attempts_delays_nothing() -> None:
    story = paused(7).failed("cpu0", "memory").feed(StateCopied())
    assert "StartEpoch" not in story.names
    assert story.fenced(*DEVICES).to_iterating().epoch.first == 8


def test_the_job_goes_on_if_no_thread_is_free_to_copy_its_state() -> None:
    story = paused(7).feed(CheckpointFailed(TryAgain("16 threads hang")))
    assert story.epoch.first == 8


def test_another_attempt_waits_for_the_first_reading_of_the_checkpoint() -> None:
    story = start_over(resumed())
    assert {"StartEpoch", "RestoreState"}.isdisjoint(story.names)

    assert story.feed(StateRestored(20, 0.25)).epoch.first == 21


def test_a_checkpoint_read_between_two_attempts_is_read_once() -> None:
    story = resumed().failed("cpu0", "memory").feed(StateRestored(20, 0.25))
    story.fenced(*DEVICES).to_iterating()
    assert (story.epoch.first, "RestoreState" in story.names) == (21, False)


def test_a_checkpoint_of_work_that_is_lost_is_taken_later() -> None:
    story = begun()
    for number in range(1, 31):
        reported(story, number, EVERY if number == 30 else 0.0)
    story.lost("cpu1").stopped("cpu0", iteration=30, reason="aborted").settled(30, saved=24)
    assert story.epoch.restores

    story.now += EVERY
    assert "PauseEpoch" in story.iterated("cpu0", 25).names

    story.stopped("cpu0", iteration=25, reason="paused", epoch=2).settled(25)
    assert story.commands == [do.SaveState(25, (0,), 0.5)]


# ---- an orderly stop


STOP = AbortRequested(TryAgain("the daemon is stopping"), saves_state=True)


def test_a_stop_saves_the_state_and_then_ends_the_job() -> None:
    story = reported(begun(), 1).feed(STOP)
    assert story.names == ["PauseEpoch"]
    story.stopped(*DEVICES, iteration=2, reason="paused").settled(2)
    assert story.commands == [do.SaveState(2, (0, 1), 0.5)]
    assert story.feed(StateCopied()).names == []

    story.feed(CheckpointWritten(2, 1000))
    assert story.names[-2:] == ["FenceDevice", "FenceDevice"]
    assert story.fenced(*DEVICES).only(do.FinishJob).error.code == TryAgain.code


def test_a_stop_waits_for_the_checkpoint_that_is_being_written_and_writes_the_last_one() -> None:
    story = paused(7).feed(StateCopied(), STOP)
    assert story.names == ["PauseEpoch"]
    story.stopped(*DEVICES, iteration=9, reason="paused", epoch=2).settled(9)
    assert story.names == []

    assert story.feed(CheckpointWritten(7, 1000)).only(do.SaveState).iteration == 9
    story.feed(StateCopied(), CheckpointWritten(9, 1000)).fenced(*DEVICES)
    assert story.state == "Ended"


def test_nothing_is_saved_twice() -> None:
    story = paused(7).feed(STOP)
    assert story.names == []
    assert story.feed(StateCopied()).names == []
    story.feed(CheckpointWritten(7, 1000))
    assert "SaveState" not in story.names
    assert story.fenced(*DEVICES).state == "Ended"


def test_a_stop_ends_the_job_though_its_state_cannot_be_saved() -> None:
    story = reported(begun(), 1).feed(STOP)
    story.stopped(*DEVICES, iteration=2, reason="paused").settled(2)
    story.feed(StateCopied(), CheckpointFailed(CantCreate("/job.ckpt: no room for 1 MiB")))
    assert story.fenced(*DEVICES).only(do.FinishJob).error.code == TryAgain.code
    assert story.machine.record.notes[0].startswith("no checkpoint after iteration 2")


def test_a_stop_saves_what_lost_devices_leave() -> None:
    story = reported(begun(), 1).feed(STOP).lost(*DEVICES).settled(1)
    assert story.only(do.SaveState).iteration == 1
    story.feed(StateCopied(), CheckpointWritten(1, 1000))
    assert story.only(do.FinishJob).error.code == TryAgain.code


def test_a_stop_waits_for_a_long_iteration_until_its_deadline_and_saves_the_one_before() -> None:
    story = reported(begun(), 1).feed(STOP)
    due = story.now + DEFAULT_DEADLINES.last_iteration
    assert story.deadline == due
    story.now = due - 2
    assert story.feed(DeadlinePassed({"cpu0": 9, "cpu1": 8})).names == []
    assert story.deadline == due

    kill = story.feed(DeadlinePassed({"cpu0": 9, "cpu1": 8})).only(do.KillDevice)
    assert kill.device == "cpu1"
    assert kill.reason.endswith("last iteration takes longer than 30 s (half of deadlines.stop)")
    story.lost("cpu1").stopped("cpu0", iteration=1, reason="aborted").settled(1)
    assert story.only(do.SaveState).iteration == 1
    story.feed(StateCopied(), CheckpointWritten(1, 1000)).fenced("cpu0")
    assert story.state == "Ended"


def test_a_state_that_would_have_to_be_restored_first_is_not_saved() -> None:
    story = begun()
    for number in range(1, 31):
        reported(story, number)
    story.feed(STOP).lost("cpu1").stopped("cpu0", iteration=30, reason="aborted")
    story.settled(30, saved=24)
    assert "SaveState" not in story.names
    assert story.only(do.LogMessage).text.startswith("stops without a checkpoint")
    assert story.fenced("cpu0").only(do.FinishJob).error.code == TryAgain.code


def test_a_second_abort_ends_the_job_at_once() -> None:
    story = reported(begun(), 1).feed(STOP, AbortRequested(Cancelled("now")))
    assert story.names == ["AbortEpoch", "FenceDevice", "FenceDevice"]


CANCEL = AbortRequested(Cancelled("job 7 was cancelled"), saves_state=True)


def test_a_cancelled_job_saves_its_state_and_says_how_to_continue() -> None:
    story = reported(begun(), 1).feed(CANCEL)
    story.stopped(*DEVICES, iteration=2, reason="paused").settled(2)
    story.feed(StateCopied(), CheckpointWritten(2, 1000))
    path = story.machine.record.settings.spec.checkpoint
    assert path
    error = story.fenced(*DEVICES).only(do.FinishJob).error
    assert error.code == Cancelled.code
    text = f"job 7 was cancelled; saved after iteration 2, --resume {path} continues"
    assert error.message == text


def test_a_second_cancellation_doesnt_wait_for_the_checkpoint() -> None:
    story = reported(begun(), 1).feed(CANCEL)
    assert story.feed(CANCEL).names == ["AbortEpoch", "FenceDevice", "FenceDevice"]
    story = reported(begun(), 1).feed(CANCEL)
    story.stopped(*DEVICES, iteration=2, reason="paused").settled(2)
    story.feed(StateCopied(), CANCEL)
    assert story.fenced(*DEVICES).only(do.FinishJob).error.code == Cancelled.code


def test_a_stop_of_the_daemon_lets_a_cancelled_job_save_its_state() -> None:
    story = reported(begun(), 1).feed(CANCEL)
    assert story.feed(STOP).names == []
    story.stopped(*DEVICES, iteration=2, reason="paused").settled(2)
    assert story.only(do.SaveState).iteration == 2


def test_without_checkpoints_a_stop_is_an_abort() -> None:
    story = IteratingStory().to_iterating().feed(STOP)
    assert story.names == ["AbortEpoch", "FenceDevice", "FenceDevice"]


def test_a_job_whose_method_ends_meanwhile_is_done() -> None:
    story = reported(begun(), 1).feed(STOP)
    story.stopped(*DEVICES, iteration=2, reason="converged").settled(2, 2)
    assert story.only(do.FinishJob).error is None
