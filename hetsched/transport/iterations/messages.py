"""Messages about iterations; part of those of `device_messages.py`."""

from __future__ import annotations

from typing import Literal

import msgspec


class Iterate(msgspec.Struct, frozen=True, tag="iterate", kw_only=True):
    """Compute iterations together with other devices, from iteration `first` on.

    Needs Prepare, with the state arrays, the partials of each reduction ("partials/NAME") and the
    control segment ("control") among its arrays. Answered by IterationsDone now and then, and by
    one IterationsStopped, or by CommandFailed. An epoch is the time between two such commands:
    its devices are always the same.

    Attributes
    ----------
    rank : int
        Of this device among those of the epoch.
    slots : tuple of int
        Slot of each rank in partials and control.
    bounds : tuple of int, rows
        Rank r has the rows from `bounds[r]` up to `bounds[r + 1]`, until the split changes.
    first : int
        0: the start stages come first. After the last iteration come the finish stages.
    last : int
        The last iteration, whether the method has converged or not; `first` - 1 or less: only
        the finish stages, after iteration `first` - 1.
    previous : tuple of int
        Slots with rows in iteration `first` - 1, in the order of their rows; (): its combined
        values are in the last slot of the partials.
    restores : bool
        Begin with what devices saved of iteration `first` - 1: the home arrays aren't valid.
    paced : bool
        Begin an iteration only when the engine allows it (virtual clocks). The newest proposal
        then holds for that iteration.
    """

    attempt: int
    epoch: int
    rank: int
    slots: tuple[int, ...]
    bounds: tuple[int, ...]
    first: int
    last: int
    previous: tuple[int, ...] = ()
    restores: bool = False
    paced: bool = False


class IterationTimes(msgspec.Struct, frozen=True, array_like=True):
    """Seconds that a device spent in one iteration: the phases of NEC, section 6.1.

    compute: kernels; transfer: copies between host and device; wait: for other devices; converge:
    combining reductions and testing convergence; save: saving its rows before the iteration, with
    the other devices (`IterationControl.save`).
    """

    compute: float
    transfer: float = 0.0
    wait: float = 0.0
    converge: float = 0.0
    save: float = 0.0

    @property
    def total(self) -> float:
        return self.compute + self.transfer + self.wait + self.converge + self.save

    def plus(self, other: IterationTimes, factor: float = 1.0) -> IterationTimes:
        """Return the sum with `factor` times `other`."""
        return IterationTimes(
            self.compute + factor * other.compute,
            self.transfer + factor * other.transfer,
            self.wait + factor * other.wait,
            self.converge + factor * other.converge,
            self.save + factor * other.save,
        )

    def divided(self, count: int) -> IterationTimes:
        """Return the mean of `count` iterations whose sum this is."""
        return IterationTimes(
            self.compute / count,
            self.transfer / count,
            self.wait / count,
            self.converge / count,
            self.save / count,
        )


class IterationsDone(msgspec.Struct, frozen=True, tag="iterations-done"):
    """The device has computed iterations `first`, `first` + 1, ..., in records of one or several.

    `phases`: of each record, the mean of an iteration; `residuals`: after each. `late`: stages
    whose real work took longer than the modelled time. The start isn't reported.
    """

    attempt: int
    first: int
    phases: tuple[IterationTimes, ...]
    residuals: tuple[float, ...]
    rows: tuple[int, ...]
    """The device's rows in each."""
    late: int = 0
    counts: tuple[int, ...] = ()
    """Iterations of each record, all with one split; (): one each."""


StopReason = Literal["converged", "limit", "paused", "aborted"]
"""Why iterations ended: the method has converged; the last one was reached; the engine wanted a
pause; the engine gave up waiting for a device."""


class IterationsStopped(msgspec.Struct, frozen=True, tag="iterations-stopped"):
    """The device computes no more iterations; all before have been reported.

    `iteration`: the last one that is complete on every device; -1: not even the start is. After
    "converged" and "limit" the finish stages are complete, too.
    """

    attempt: int
    epoch: int
    iteration: int
    reason: StopReason
