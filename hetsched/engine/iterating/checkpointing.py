"""When the state of an iterative job is saved, and how far the present checkpoint is. Pure."""

from __future__ import annotations

import enum
import math


class CheckpointStep(enum.Enum):
    """What is being done for a checkpoint."""

    NONE = "none"
    PAUSING = "pausing"
    COPYING = "copying"
    WRITING = "writing"


class CheckpointSchedule:
    """The checkpoints of one job: one after the other, a time apart.

    Devices pause only while the state is copied; then they go on, and the copy is written. From
    copy to copy it takes `every`, or, on a slow disk, twice as long as the writing.

    Parameters
    ----------
    every : float, seconds

    Attributes
    ----------
    saved : int
        The iteration of the last copy; -1: none.
    written_iteration : int
        The iteration of the last complete file of this job; -1: none.
    pause_seconds : float
        How long the devices paused for it.
    """

    def __init__(self, every: float) -> None:
        self._every = every
        self._due = math.inf
        self._step = CheckpointStep.NONE
        self._paused_at = 0.0
        self.saved = -1
        self.written_iteration = -1
        self.pause_seconds = 0.0

    @property
    def is_copying(self) -> bool:
        """Whether no device may compute."""
        return self._step is CheckpointStep.COPYING

    @property
    def is_saving(self) -> bool:
        """Whether a thread copies the state, or writes a copy."""
        return self._step in (CheckpointStep.COPYING, CheckpointStep.WRITING)

    @property
    def is_pausing(self) -> bool:
        """Whether the devices have been asked to pause for a checkpoint."""
        return self._step is CheckpointStep.PAUSING

    def begin(self, now: float) -> None:
        """Begin to count: an attempt has begun to iterate.

        What is being copied or written for an earlier one goes on.
        """
        if self._step in (CheckpointStep.NONE, CheckpointStep.PAUSING):
            self._step = CheckpointStep.NONE
            self._due = now + self._every

    def is_due(self, now: float) -> bool:
        """Return whether the devices should pause now."""
        return self._step is CheckpointStep.NONE and now >= self._due

    def pause(self) -> None:
        """Record that the devices have been asked to pause."""
        self._step = CheckpointStep.PAUSING

    def copy(self, iteration: int, now: float) -> bool:
        """Return whether to copy the state now, after `iteration`: the devices have stopped."""
        if iteration <= max(0, self.saved):
            self.give_up(now)
        if self._step is not CheckpointStep.PAUSING:
            return False
        self._step = CheckpointStep.COPYING
        self._paused_at = now
        self.saved = iteration
        return True

    def give_up(self, now: float) -> None:
        """Record that there is nothing to copy after all: work was lost. The next one is later."""
        if self._step is CheckpointStep.PAUSING:
            self._step = CheckpointStep.NONE
            self._due = now + self._every

    def copied(self, now: float) -> None:
        """Record that the copy is complete; devices go on."""
        self._step = CheckpointStep.WRITING
        self.pause_seconds = now - self._paused_at

    def written(self, now: float) -> None:
        """Record that the file is complete, or that it can't be written."""
        self._step = CheckpointStep.NONE
        self._due = max(self._paused_at + self._every, 2 * now - self._paused_at)
