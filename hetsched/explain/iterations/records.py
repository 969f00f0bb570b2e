"""The iterations of a job as figures; times in seconds."""

from __future__ import annotations

from typing import Literal

import msgspec

MoveKind = Literal["balance", "lost", "joined"]
"""Why rows moved: for balance, because a device was lost or disabled, because one came (back)."""


class IterationSpan(msgspec.Struct, frozen=True, kw_only=True):
    """Iterations `first`, `first` + 1, ..., `first` + `count` - 1; one, if it was long enough.

    Attributes
    ----------
    seconds : float
        Mean per iteration and device.
    residual : float or None
        After the last of them; None: the workload has no such number.
    rows : tuple of int
        Of each device, in the last of them.
    compute, transfer, wait, converge, save : tuple of float
        Of each device: mean per iteration (the phases of NEC, section 6.1; `save`: its rows, for
        the loss of a device with its own memory).
    """

    first: int
    count: int = 1
    seconds: float
    residual: float | None = None
    rows: tuple[int, ...]
    compute: tuple[float, ...]
    transfer: tuple[float, ...]
    wait: tuple[float, ...]
    converge: tuple[float, ...]
    save: tuple[float, ...]

    @property
    def last(self) -> int:
        return self.first + self.count - 1


class RowMove(msgspec.Struct, frozen=True, kw_only=True):
    """Rows that moved between devices after an iteration.

    Attributes
    ----------
    after : int
        The last iteration with the split before.
    before, rows : tuple of int
        Rows of each device.
    moved : int
        Rows that changed their device.
    busy : tuple of float
        Seconds of each device without waits, in the last iteration before.
    expected_cost : float or None
        Of moving them, as the decision assumed; None: it didn't weigh the cost.
    expected_before, expected_after : float or None
        Seconds of an iteration, as the decision assumed.
    seconds_before, seconds_after : float or None
        Measured, means since the previous move and until the next one.
    first_seconds : float or None
        Of the first iteration after it.
    iterations : int
        With these rows, so far.
    """

    after: int
    kind: MoveKind = "balance"
    reason: str = ""
    before: tuple[int, ...]
    rows: tuple[int, ...]
    moved: int
    busy: tuple[float, ...] = ()
    expected_cost: float | None = None
    expected_before: float | None = None
    expected_after: float | None = None
    seconds_before: float | None = None
    seconds_after: float | None = None
    first_seconds: float | None = None
    iterations: int = 0

    @property
    def cost(self) -> float | None:
        """How much longer than the following ones the first iteration took."""
        if self.first_seconds is None or self.seconds_after is None or self.iterations < 2:
            return None
        others = self.seconds_after * self.iterations - self.first_seconds
        return max(0.0, self.first_seconds - others / (self.iterations - 1))

    @property
    def gain(self) -> float | None:
        """Seconds saved by all iterations with these rows; negative: lost."""
        if self.seconds_before is None or self.seconds_after is None:
            return None
        return (self.seconds_before - self.seconds_after) * self.iterations


class WrittenCheckpoint(msgspec.Struct, frozen=True):
    """A checkpoint written after `iteration`; the devices paused for `pause` seconds."""

    iteration: int
    pause: float
    nbytes: int = 0


class IterationHistory(msgspec.Struct, frozen=True, kw_only=True):
    """All iterations of a job.

    Attributes
    ----------
    devices : tuple of str
        Their names, in the order of all tuples above.
    first, iterations : int
        The first iteration (not 1 if the job continued from a checkpoint), and the last complete
        one.
    seconds : float
        Of all of them.
    residual : float or None
    converged : bool or None
        None: they haven't ended, or the workload has no such test.
    moves : tuple of RowMove
        Without `omitted_moves` in the middle.
    checkpoints : tuple of WrittenCheckpoint
        The last ones; `written_checkpoints` in all, `checkpoint_seconds` of pauses.
    repeated : int
        Iterations that were computed again, because a device was lost in them.
    """

    devices: tuple[str, ...]
    first: int = 1
    iterations: int = 0
    seconds: float = 0.0
    residual: float | None = None
    converged: bool | None = None
    spans: tuple[IterationSpan, ...] = ()
    moves: tuple[RowMove, ...] = ()
    omitted_moves: int = 0
    checkpoints: tuple[WrittenCheckpoint, ...] = ()
    written_checkpoints: int = 0
    checkpoint_seconds: float = 0.0
    repeated: int = 0

    @property
    def nbytes(self) -> int:
        """Estimated bytes in memory."""
        per_span = 300 + 5 * 40 * len(self.devices)
        return per_span * (len(self.spans) + len(self.moves))
