"""Iterative jobs: epochs, splits, and how the job ends."""

from __future__ import annotations

import math
from types import SimpleNamespace

from iterating_story import ITERATIONS, ROWS, IteratingStory, ended
from job_story import DEVICES, Story

from hetsched.engine.deadlines import DEFAULT_DEADLINES
from hetsched.engine.job import commands as do
from hetsched.engine.job.events import (
    AbortRequested,
    DeadlinePassed,
    InputsLoaded,
    LoadFailed,
    Published,
)
from hetsched.engine.job.job_record import MAX_NOTES
from hetsched.errors import Cancelled, IOFailure
from hetsched.partition.iterations import IterationBalance
from hetsched.transport.device_messages import StoredArray

FILE = StoredArray(array="x", key=-4, shape=(ROWS, 1), dtype="<f8", offset=128)


def test_all_prepared_devices_begin_together() -> None:
    story = IteratingStory().to_iterating()

    assert story.state == "Iterating"
    epoch = story.epoch
    assert (epoch.devices, epoch.bounds) == (DEVICES, (0, 50, 100))
    assert (epoch.first, epoch.last, epoch.is_paced) == (0, ITERATIONS, False)


def test_a_job_that_has_converged_is_done() -> None:
    finish = ended().only(do.FinishJob)

    report = finish.report
    assert (finish.error, report.state) == (None, "done")
    assert (report.iterations, report.residual, report.converged) == (9, 0.5, True)
    assert [(each.share, each.phases.compute) for each in report.devices] == [(50, 9.0)] * 2
    assert report.moves == 0


def test_a_number_of_iterations_may_be_all_that_is_asked_for() -> None:
    report = ended("limit").only(do.FinishJob).report
    assert (report.state, report.converged) == ("done", False)


def test_without_a_residual_nothing_was_to_converge() -> None:
    story = IteratingStory().to_iterating()
    for device in DEVICES:
        story.iterated(device, 1, residual=math.nan)
    report = story.stopped(*DEVICES, iteration=1, reason="limit").settled(1, 1)
    assert report.only(do.FinishJob).report.converged is None


def test_no_convergence_is_a_failure_whose_result_is_kept() -> None:
    finish = ended("limit", must_converge=True).only(do.FinishJob)
    assert finish.error.code == 1
    assert finish.error.message.startswith("no convergence after 9 iterations: residual 0.5")
    assert finish.keeps_results
    assert (finish.report.iterations, finish.report.continued_after) == (9, 0)
    assert finish.report.seconds is not None
    assert finish.report.spread is not None


def test_without_convergence_output_files_are_published_all_the_same() -> None:
    story = IteratingStory(must_converge=True, outputs={"y": SimpleNamespace(path="/y")})
    story.to_iterating().stopped(*DEVICES, iteration=9, reason="limit").settled(9, 9)
    assert story.names == ["PublishOutputs"]
    assert story.feed(Published()).only(do.FinishJob).error.code == 1


def test_progress_shows_iteration_residual_and_rows() -> None:
    story = IteratingStory().to_iterating().iterated("cpu0", 1, 3).iterated("cpu1", 1, 3)
    running = story.only(do.ReportProgress).state
    assert (running.stage, running.iteration, running.max_iterations) == ("computing", 3, 50)
    assert running.residual == 0.5
    assert [(each.device, each.done) for each in running.devices] == [("cpu0", 50), ("cpu1", 50)]


# ---- the balance


class Moving:
    """Moves 10 rows to cpu1 after each report, up to `moves` times."""

    is_warming_up = False

    def __init__(self, moves: int = 1, step: int = 10) -> None:
        self.rows = (50, 50)
        self.moves, self.step = moves, step

    def tell(self, iterations: object, remaining: int | None = None) -> object:
        if self.moves:
            self.moves -= 1
            self.rows = (self.rows[0] - self.step, self.rows[1] + self.step)
        return None

    def lose(self, device: int) -> None: ...
    def restore(self, device: int) -> None: ...


def test_a_new_split_is_proposed_once_until_devices_have_adopted_it() -> None:
    story = IteratingStory(balance=Moving(moves=2)).to_iterating()
    story.iterated("cpu0", 1).iterated("cpu1", 1)
    assert story.only(do.ProposeSplit).bounds == (0, 40, 100)

    story.iterated("cpu0", 2).iterated("cpu1", 2)
    assert "ProposeSplit" not in story.names, "the balance wants (30, 70) now"

    story.iterated("cpu0", 3, rows=40).iterated("cpu1", 3, rows=60)
    assert story.only(do.ProposeSplit).bounds == (0, 30, 100)
    assert story.iterations.moves == 1


def test_virtual_devices_are_allowed_one_iteration_after_the_other() -> None:
    story = IteratingStory(balance=Moving(), clock="virtual").to_iterating()
    assert story.epoch.is_paced
    story.iterated("cpu0", 1).iterated("cpu1", 1, seconds=3.0)
    assert [name for name in story.names if name != "ReportProgress"] == [
        "ProposeSplit",
        "AllowIteration",
    ]
    assert story.only(do.AllowIteration).iteration == 2
    assert story.iterations.sums.of("cpu0").wait == 2.0, "it waited for cpu1"


def test_a_device_without_rows_leaves_at_a_pause() -> None:
    story = IteratingStory(balance=Moving(step=50)).to_iterating()
    story.iterated("cpu0", 1).iterated("cpu1", 1)
    assert "PauseEpoch" in story.names
    story.stopped(*DEVICES, iteration=2, reason="paused").settled(2)
    assert (story.epoch.devices, story.epoch.first) == (("cpu1",), 3)


def test_a_device_that_gets_rows_again_joins_at_a_pause() -> None:
    balance = Moving(step=50)
    story = IteratingStory(balance=balance).to_iterating().iterated("cpu0", 1)
    story.iterated("cpu1", 1).stopped(*DEVICES, iteration=2, reason="paused").settled(2)
    assert story.epoch.devices == ("cpu1",)

    balance.moves, balance.step = 1, -50
    assert "PauseEpoch" in story.iterated("cpu1", 3, rows=100).names
    story.stopped("cpu1", iteration=3, reason="paused", epoch=2).settled(3)
    assert story.epoch.rows == {"cpu0": 50, "cpu1": 50}


def test_a_warm_up_pauses_after_each_round() -> None:
    balance = IterationBalance(ROWS, 2, "functional", names=DEVICES, warm_up=True)
    story = IteratingStory(balance=balance).to_iterating()
    assert story.names[-2:] == ["StartEpoch", "PauseEpoch"]
    story.stopped(*DEVICES, iteration=0, reason="paused").settled(0)
    story.iterated("cpu0", 1).iterated("cpu1", 1, seconds=3.0)
    story.stopped(*DEVICES, iteration=1, reason="paused", epoch=2).settled(1)
    assert (story.epoch.first, story.epoch.rows) == (1, {"cpu0": 75, "cpu1": 25})


def test_a_round_that_a_loss_ended_is_not_repeated() -> None:
    """Another device may have begun iteration 2, which overwrites the input of the round."""
    balance = IterationBalance(ROWS, 2, "functional", names=DEVICES, warm_up=True)
    story = IteratingStory(balance=balance).to_iterating()
    story.stopped(*DEVICES, iteration=0, reason="paused").settled(0)
    story.iterated("cpu0", 1).iterated("cpu1", 1).lost("cpu1")
    story.stopped("cpu0", iteration=1, reason="aborted", epoch=2).settled(1)
    assert (story.epoch.first, story.epoch.previous) == (2, (0, 1))


# ---- errors


def test_a_job_that_starts_over_continues_where_it_was() -> None:
    story = IteratingStory().to_iterating().failed("cpu0", "memory")
    assert story.names[-3:] == ["AbortEpoch", "FenceDevice", "FenceDevice"]
    story.fenced(*DEVICES)
    assert story.names == ["SettleEpoch", "WaitForProcesses"]
    story.settled(3)
    epoch = story.to_iterating().epoch
    assert (epoch.number, epoch.first, epoch.previous) == (2, 4, (0, 1))


def test_bad_data_fail_the_job() -> None:
    story = IteratingStory().to_iterating().failed("cpu0", "kernel", "row 0 is bad data")
    finish = story.fenced(*DEVICES).only(do.FinishJob)
    assert finish.error.message == "row 0 is bad data"
    assert not finish.keeps_results


def test_a_cancelled_job_ends_when_its_devices_have_stopped() -> None:
    story = IteratingStory().to_iterating().feed(AbortRequested(Cancelled("no more")))
    assert story.names == ["AbortEpoch", "FenceDevice", "FenceDevice"]
    assert story.fenced(*DEVICES).only(do.FinishJob).error.code == 130


def test_only_the_device_that_the_others_wait_for_is_killed() -> None:
    story = IteratingStory().to_iterating().iterated("cpu0", 1).iterated("cpu1", 1)
    late = story.now + DEFAULT_DEADLINES.chunk
    arrivals = {"cpu0": 5, "cpu1": 4}

    story.feed(DeadlinePassed(arrivals))
    assert "KillDevice" not in story.names
    story.now = late + 1
    story.feed(DeadlinePassed(arrivals))
    kill = story.only(do.KillDevice)
    assert (kill.device, kill.reason) == (
        "cpu1",
        "an iteration takes longer than 30 s (deadlines.chunk)",
    )


def test_devices_that_arrive_are_not_killed_however_long_an_iteration_takes() -> None:
    story = IteratingStory().to_iterating().iterated("cpu0", 1).iterated("cpu1", 1)
    for count in range(9):
        story.now += DEFAULT_DEADLINES.chunk - 2
        story.feed(DeadlinePassed({"cpu0": count, "cpu1": count}))
        assert "KillDevice" not in story.names


# ---- inputs from files


def test_inputs_are_read_before_anything_else() -> None:
    story = IteratingStory(inputs={"x": FILE}).to_waiting()
    assert (story.state, story.names) == ("LoadingInputs", ["AllocateArrays", "LoadInputs"])
    assert story.feed(InputsLoaded()).names == ["WaitForProcesses"]


def test_a_job_in_one_pass_reads_its_inputs_chunk_by_chunk() -> None:
    story = Story()
    story.job.inputs["x"] = FILE
    assert story.to_waiting().names == ["AllocateArrays", "WaitForProcesses"]


def test_an_input_that_cannot_be_read_fails_the_job() -> None:
    story = IteratingStory(inputs={"x": FILE}).to_waiting().feed(LoadFailed(IOFailure("gone")))
    assert story.only(do.FinishJob).error.message == "gone"


def test_a_cancelled_job_waits_for_the_thread_that_reads() -> None:
    story = IteratingStory(inputs={"x": FILE}).to_waiting()
    assert story.feed(AbortRequested(Cancelled("no"))).names == ["CancelLoading"]
    assert story.feed(LoadFailed(Cancelled("thread"))).only(do.FinishJob).error.message == "no"


def test_the_notes_of_a_job_are_bounded() -> None:
    record = IteratingStory().machine.record
    for number in range(3 * MAX_NOTES):
        record.note(f"note {number}")

    notes = record.report_notes
    assert len(record.notes) == MAX_NOTES
    assert (notes[0], notes[-1]) == ("note 0", f"note {3 * MAX_NOTES - 1}")
    assert notes[MAX_NOTES // 2] == f"({2 * MAX_NOTES} notes omitted here)"
