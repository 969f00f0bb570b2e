"""Iterative jobs whose devices come and go: epochs, what is repeated, what is saved."""

from __future__ import annotations

from iterating_story import ITERATIONS, ROWS, IteratingStory, ended
from job_story import DEVICES, info

from hetsched.engine.job import commands as do
from hetsched.engine.job.events import Begin, DevicesSwitched, ProcessesSettled


def test_the_others_go_on_after_the_last_complete_iteration() -> None:
    story = IteratingStory().to_iterating().iterated("cpu0", 1, 5).lost("cpu1")
    assert "AbortEpoch" in story.names
    story.stopped("cpu0", iteration=5, reason="aborted")
    assert story.only(do.SettleEpoch).slots == (0, 1)
    story.settled(5)
    epoch = story.epoch
    assert (epoch.number, epoch.devices, epoch.bounds) == (2, ("cpu0",), (0, 100))
    assert (epoch.first, epoch.previous) == (6, (0, 1))


def test_the_others_go_back_to_what_was_saved_of_a_devices_own_memory() -> None:
    story = IteratingStory().to_iterating().iterated("cpu0", 1, 30).iterated("cpu1", 1, 30)
    story.lost("cpu1").stopped("cpu0", iteration=30, reason="aborted")
    story.settled(30, ended=30, saved=24)

    epoch = story.epoch
    assert (epoch.devices, epoch.first, epoch.previous) == (("cpu0",), 25, ())
    assert epoch.restores and epoch.last == ITERATIONS
    assert "iterations 25 to 30 were lost and repeated" in story.machine.record.notes
    assert story.iterations.history.history().repeated == 6

    story.iterated("cpu0", 25, 6).lost("cpu0").settled(30)
    story.joined("cpu0").prepared("cpu0")
    assert (story.epoch.first, story.epoch.restores) == (31, False)


def test_a_second_loss_before_rows_are_restored_repeats_nothing_more() -> None:
    story = IteratingStory().to_iterating().iterated("cpu0", 1, 30).iterated("cpu1", 1, 30)
    story.lost("cpu1").stopped("cpu0", iteration=30, reason="aborted").settled(30, saved=24)
    story.lost("cpu0").settled(24, saved=24)

    story.joined("cpu0").prepared("cpu0")
    assert (story.epoch.first, story.epoch.restores) == (25, True)
    notes = [note for note in story.machine.record.notes if "were lost" in note]
    assert notes == ["iterations 25 to 30 were lost and repeated"]
    assert story.iterations.history.history().repeated == 6


def test_a_device_that_comes_back_joins_at_a_pause() -> None:
    story = IteratingStory().to_iterating().lost("cpu1")
    story.stopped("cpu0", iteration=0, reason="aborted").settled(0)

    assert story.joined("cpu1").only(do.PrepareDevice).assignment.device == "cpu1"
    assert story.prepared("cpu1").names == ["PauseEpoch"]
    story.stopped("cpu0", iteration=7, reason="paused", epoch=2).settled(7)
    assert (story.epoch.devices, story.epoch.first, story.epoch.previous) == (DEVICES, 8, (0,))


def test_a_device_that_was_missing_at_the_start_is_planned_for_when_it_appears() -> None:
    story = IteratingStory().to_iterating(["cpu0"]).joined("cpu1")
    assert story.names == ["PauseEpoch"], "no iteration is computed again for it"
    story.stopped("cpu0", iteration=4, reason="paused").settled(4)
    assert story.names[-1] == "FenceDevice"
    story.fenced("cpu0")
    epoch = story.to_iterating().epoch
    assert (epoch.devices, epoch.first, epoch.previous) == (DEVICES, 5, (0,))


def test_a_loss_before_the_pause_for_a_new_device_plans_with_it_at_once() -> None:
    story = IteratingStory().to_iterating(["cpu0"]).joined("cpu1").lost("cpu0").settled(4)
    epoch = story.to_iterating(["cpu1"]).epoch
    assert (epoch.devices, epoch.first) == (("cpu1",), 5)


def test_virtual_seconds_are_those_of_the_slowest_device() -> None:
    story = IteratingStory(clock="virtual").to_iterating()
    for iteration in (1, 2):
        story.iterated("cpu0", iteration).iterated("cpu1", iteration, seconds=3.0)
    story.stopped(*DEVICES, iteration=2, reason="converged").settled(2, 2)
    assert story.only(do.FinishJob).report.seconds == 6.0


def test_when_all_die_the_job_goes_on_when_all_are_back() -> None:
    story = IteratingStory().to_iterating().lost(*DEVICES)
    assert story.only(do.SettleEpoch)
    assert story.settled(3).commands == []
    story.joined(*DEVICES).prepared("cpu0")
    assert story.commands == [], "cpu1 is about to be ready, too"
    epoch = story.prepared("cpu1").epoch
    assert (epoch.devices, epoch.first, epoch.previous) == (DEVICES, 4, (0, 1))


def test_a_death_while_results_are_written_repeats_only_that() -> None:
    story = IteratingStory().to_iterating().stopped("cpu0", iteration=9, reason="converged")
    story.lost("cpu1").settled(9, 9)
    epoch = story.epoch
    assert (epoch.first, epoch.last) == (10, 9)
    story.stopped("cpu0", iteration=9, reason="limit", epoch=2).settled(9, 9)
    report = story.only(do.FinishJob).report
    assert (report.iterations, report.converged) == (9, True)


def test_a_loss_during_verification_does_not_iterate_again() -> None:
    story = ended(verify=True)
    assert story.state == "Verifying"
    story.lost("cpu0").fenced("cpu1")
    story.to_iterating(["cpu1"])
    assert (story.state, story.only(do.CheckUnits).order.count) == ("Verifying", ROWS)
    assert story.checked("cpu1").only(do.FinishJob).report.verified


def test_a_disabled_device_leaves_and_returns_when_it_is_enabled() -> None:
    story = IteratingStory().to_iterating().feed(DevicesSwitched(frozenset({"cpu0"})))
    assert story.names == ["PauseEpoch"]
    story.stopped(*DEVICES, iteration=4, reason="paused").settled(4)
    assert story.epoch.devices == ("cpu1",)

    story.feed(DevicesSwitched(frozenset()))
    story.stopped("cpu1", iteration=6, reason="paused", epoch=2).settled(6)
    assert (story.epoch.devices, story.epoch.first) == (DEVICES, 7)


def test_a_job_whose_devices_are_all_disabled_says_so_and_waits() -> None:
    story = IteratingStory().to_iterating().feed(DevicesSwitched(frozenset(DEVICES)))
    story.stopped(*DEVICES, iteration=4, reason="paused").settled(4)
    assert story.only(do.ReportProgress).state.text == "all devices that could go on are disabled"
    assert story.feed(DevicesSwitched(frozenset())).epoch.first == 5


def test_a_device_that_is_disabled_from_the_start_waits_outside() -> None:
    story = IteratingStory().to_iterating(disabled=["cpu1"])
    assert story.epoch.devices == ("cpu0",)
    assert story.feed(DevicesSwitched(frozenset())).names == ["PauseEpoch"]


def test_a_device_that_is_disabled_before_the_first_epoch_has_no_part_in_it() -> None:
    story = IteratingStory().feed(Begin())
    story.feed(ProcessesSettled(41, (info("cpu0"), info("cpu1")), {}))
    story.feed(DevicesSwitched(frozenset({"cpu1"})))
    assert story.machine.record.disabled == {"cpu1"}


def test_without_an_enabled_device_there_is_no_job() -> None:
    story = IteratingStory().to_iterating(disabled=DEVICES)
    assert story.state == "Ended"
