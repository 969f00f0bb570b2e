"""Iterative jobs on devices that die, return and are switched off at random moments.

The devices are simulated: each finishes an iteration only if the others have finished the one
before, as barriers have it.
"""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import pytest
from iterating_story import ROWS, IteratingStory
from job_story import DEVICES

from hetsched.engine.job import commands as do
from hetsched.engine.job.events import DevicesSwitched
from hetsched.partition.iterations import IterationBalance

END = 30
"""The method converges after so many iterations."""
MAX_STEPS = 4000
GPU, INTERVAL = "cpu1", 4
"""The device that may have its own memory, and after how many iterations all save their rows."""


class Devices:
    """Carries out the commands of a job on simulated devices, in a random order."""

    def __init__(self, seed: int, *, has_gpu: bool) -> None:
        self.random = random.Random(seed)
        self.has_gpu = has_gpu
        self.saved: int | None = None
        """The iteration that was saved last in this epoch."""
        self.is_gpu_lost = False
        self.next_first = 0
        balance = IterationBalance(ROWS, 2, "auto", names=DEVICES)
        self.story = IteratingStory(balance=balance)
        self.alive, self.preparing = set(DEVICES), set[str]()
        self.finished: dict[str, int] = {}
        """Device of the epoch -> the last iteration that it has finished."""
        self.running: set[str] = set()
        self.epoch: Any = None
        self.computed_by: dict[int, tuple[int, ...]] = {}
        """Iteration -> slots that have its partial results."""
        self.rows: tuple[int, ...] = ()
        self.is_pausing = self.is_aborting = False
        self.repeated = self.losses = 0
        self.story.to_iterating()
        self.obey()

    @property
    def has_ended(self) -> bool:
        return self.story.state == "Ended"

    @property
    def last(self) -> int:
        return min(END, self.epoch.last)

    def obey(self) -> None:
        """Carry out the commands of the last event, and of those that follow from them."""
        for command in self.story.commands:
            match command:
                case do.StartEpoch(_, epoch):
                    self._start(epoch)
                case do.ProposeSplit(bounds):
                    assert bounds[-1] == ROWS
                    self.rows = tuple(b - a for a, b in pairwise(bounds))
                case do.PauseEpoch():
                    self.is_pausing = True
                case do.AbortEpoch():
                    self.is_aborting = True
                case do.PrepareDevice(_, assignment):
                    self.preparing.add(assignment.device)
                case do.SettleEpoch():
                    assert not self.running, "devices still compute"
                    finished = min(self.finished.values())
                    ended = END if finished >= END else None
                    for iteration in range(max(0, self.epoch.first), finished + 1):
                        self.computed_by[iteration] = self.epoch.slots
                    self.repeated += max(self.finished.values()) - finished
                    saved = self._saved_before(finished)
                    self.next_first = finished + 1 if saved is None else saved + 1
                    self.story.settled(finished, ended, saved)
                    self.obey()
                    return

    def _saved_before(self, finished: int) -> int | None:
        """Return where to go back to, if the GPU was lost with later rows."""
        if not self.is_gpu_lost or self.saved is None or self.saved >= finished:
            return None
        self.repeated += finished - self.saved
        self.computed_by[self.saved] = ()
        return self.saved

    def _start(self, epoch: Any) -> None:
        assert not self.running, "the epoch before hasn't ended"
        assert set(epoch.devices) <= self.alive - self.preparing
        assert sum(epoch.rows.values()) == ROWS
        assert epoch.first == self.next_first
        assert epoch.restores <= (epoch.previous == ())
        if epoch.first:
            assert epoch.previous == self.computed_by[epoch.first - 1]
        self.epoch, self.rows = epoch, tuple(epoch.rows.values())
        self.finished = dict.fromkeys(epoch.devices, epoch.first - 1)
        self.running = set(epoch.devices)
        self.is_pausing = self.is_aborting = self.is_gpu_lost = False
        self.saved = None

    def step(self) -> None:
        """Let something happen."""
        choice = self.random.random()
        if choice < 0.02 and self.alive:
            lost = self.random.sample(sorted(self.alive), self.random.randint(1, len(self.alive)))
            self._lose(lost)
        elif choice < 0.04:
            off = frozenset(d for d in DEVICES if self.random.random() < 0.3)
            self.story.feed(DevicesSwitched(off if len(off) < len(DEVICES) else frozenset()))
        elif choice < 0.15 and len(self.alive) < len(DEVICES):
            back = sorted(set(DEVICES) - self.alive)
            self.alive.update(back)
            self.story.joined(*back)
        elif choice < 0.4 and self.preparing:
            device = self.random.choice(sorted(self.preparing))
            self.preparing.remove(device)
            self.story.prepared(device)
        elif self.running:
            self._advance(self.random.choice(sorted(self.running)))
        else:
            return
        self.obey()

    def _lose(self, devices: list[str]) -> None:
        self.losses += 1
        self.is_gpu_lost |= GPU in self.running.intersection(devices)
        self.alive.difference_update(devices)
        self.preparing.difference_update(devices)
        self.running.difference_update(devices)
        self.story.lost(*devices, counts=False)

    def _advance(self, device: str) -> None:
        """Finish an iteration, wait at its end, or stop there."""
        own, least = self.finished[device], min(self.finished.values())
        is_waiting = own > least
        if is_waiting and self.is_aborting:
            self._stop(device, "aborted")
        elif is_waiting:
            self.story.commands = []
        elif own >= self.last:
            self._stop(device, "converged" if self.epoch.first <= self.epoch.last else "limit")
        elif self.is_pausing and len(set(self.finished.values())) == 1 and own >= 0:
            for each in sorted(self.running):
                self._stop(each, "paused")
        else:
            self.finished[device] = own + 1
            self.story.commands = []
            self._save()
            if own >= 0:
                rank = self.epoch.devices.index(device)
                seconds = self.rows[rank] * (1.0 if device == "cpu0" else 2.0)
                self.story.iterated(device, own + 1, rows=self.rows[rank], seconds=seconds)

    def _save(self) -> None:
        """Save an iteration that all devices have finished, now and then."""
        finished = set(self.finished.values())
        before = self.epoch.first - 1 if self.saved is None else self.saved
        if self.has_gpu and len(finished) == 1 and min(finished) - before >= INTERVAL:
            self.saved = min(finished)

    def _stop(self, device: str, reason: str) -> None:
        self.running.discard(device)
        number = self.epoch.number
        self.story.stopped(device, iteration=self.finished[device], reason=reason, epoch=number)


@pytest.mark.parametrize("has_gpu", [False, True])
@pytest.mark.parametrize("seed", range(40))
def test_a_job_ends_after_the_right_iteration_whatever_happens(seed: int, has_gpu: bool) -> None:
    devices = Devices(seed, has_gpu=has_gpu)
    for _ in range(MAX_STEPS):
        if devices.has_ended:
            break
        devices.step()
    assert devices.has_ended
    report = devices.story.only(do.FinishJob).report
    assert (report.state, report.iterations, report.converged) == ("done", END, True)
    assert devices.repeated <= devices.losses * (1 + has_gpu * INTERVAL)
