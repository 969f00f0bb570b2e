"""The history table of one device and its predictions: NEC, US 9,038,088.

Rows of load, compute time and transfer time; both times are assumed to be linear in the load.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from statistics import fmean

import numpy as np

from hetsched.errors import UsageError
from hetsched.models.curves.curve import NO_POINTS
from hetsched.models.curves.segments import Floats, Numbers
from hetsched.models.validation import require_observation
from hetsched.partition.balancing.partial_models import Learner
from hetsched.partition.balancing.phase import Reading

Line = tuple[float, float]
"""Gap and slope, seconds and seconds/unit."""
MAX_RATIO = 1.2
"""Relative deviation from the prediction that may mean a changed speed. Arbitrary: far above
noise, and a line fitted to a curve may be wrong by as much."""
MIN_DEVIATIONS = 2
"""Consecutive rows, all too slow or all too fast, that mean a changed speed: a single one may be
an outlier."""
MAX_ROWS = 32
"""Rows kept, the latest."""


class NodeModel:
    """Seconds of a device's compute and transfer phases, each gap + slope x for x > 0 units.

    Fitted to the history by non-negative least squares; through the origin while there is only one
    size.

    Parameters
    ----------
    history : iterable of (units, compute seconds, transfer seconds), optional
        Earlier runs.

    Attributes
    ----------
    change : bool
        Whether the last row confirmed a change of speed: earlier rows were discarded.

    Raises
    ------
    UsageError
        A row's units or total time aren't positive and finite, or a time is negative.
    """

    def __init__(self, history: Iterable[tuple[float, float, float]] = ()) -> None:
        self._rows: deque[tuple[float, float, float]] = deque(maxlen=MAX_ROWS)
        self._deviations = 0
        self.change = False
        self._fit: tuple[Line, Line] | None = None
        for row in history:
            self.observe(*row)

    def observe(self, units: float, compute: float, transfer: float = 0.0) -> None:
        """Add a row. Raises UsageError like the constructor."""
        require_observation(units, compute + transfer)
        if compute < 0 or transfer < 0:
            raise UsageError(f"observation: {compute}, {transfer} s, must not be negative")
        self._detect_change(units, compute + transfer)
        self._rows.append((float(units), float(compute), float(transfer)))
        self._fit = None

    def _detect_change(self, units: float, seconds: float) -> None:
        """Discard the rows before a change of speed, once enough rows confirm it."""
        ratio = seconds / self.time(units) if self._rows else 1.0
        side = int(ratio > MAX_RATIO) - int(ratio < 1 / MAX_RATIO)
        self._deviations = side + (self._deviations if self._deviations * side > 0 else 0)
        self.change = abs(self._deviations) == MIN_DEVIATIONS
        if self.change:
            self._deviations = 0
            self._rows = deque(list(self._rows)[1 - MIN_DEVIATIONS :], maxlen=MAX_ROWS)

    @property
    def rows(self) -> Floats:
        """Return (n, 3) float64, units, compute and transfer seconds, oldest first."""
        return np.array(self._rows).reshape(-1, 3)

    @property
    def points(self) -> Floats:
        """Return (n, 2) float64, units and median seconds of both phases, by units."""
        rows = self.rows
        if not len(rows):
            return NO_POINTS.copy()
        sizes = np.unique(rows[:, 0])
        middle = [np.median(rows[rows[:, 0] == size, 1:].sum(axis=1)) for size in sizes]
        return np.column_stack((sizes, middle))

    def compute(self, units: float) -> float:
        """Return the seconds of the compute phase."""
        (gap, slope), _ = self._lines()
        return gap + slope * units if units else 0.0

    def transfer(self, units: float) -> float:
        """Return the seconds of the transfer phase."""
        _, (gap, slope) = self._lines()
        return gap + slope * units if units else 0.0

    @property
    def slopes(self) -> tuple[float, float]:
        """Return the slopes of the compute and the transfer phase, seconds per unit."""
        (_, compute), (_, transfer) = self._lines()
        return compute, transfer

    def phase_costs(self, units: float) -> tuple[tuple[float, float], tuple[float, float]]:
        """Return the seconds of the compute and the transfer phase, and the slope of each."""
        return (self.compute(units), self.transfer(units)), self.slopes

    def time(self, x: float | Numbers, /) -> float | Floats:
        """Return the seconds of both phases for `x` units (number or array); 0 for x = 0."""
        compute, transfer = self._lines()
        gap, slope = compute[0] + transfer[0], compute[1] + transfer[1]
        if isinstance(x, np.ndarray):
            return np.where(x > 0, gap + slope * x, 0.0)
        return gap + slope * x if x else 0.0

    def speed(self, x: float | Numbers, /) -> float | Floats:
        """Return units per second at `x` > 0 units (number or array)."""
        return x / self.time(x)

    def _lines(self) -> tuple[Line, Line]:
        """Return the lines of the compute and of the transfer phase."""
        if self._fit is None:
            if not self._rows:
                raise UsageError("NodeModel: no history yet; call observe(units, seconds) first")
            units, compute, transfer = zip(*self._rows, strict=True)
            self._fit = _line(units, compute), _line(units, transfer)
        return self._fit


class NodeLearner(Learner):
    """A learner of phases for a NodeModel; the convergence check counts as computing."""

    def learn(self, units: int, reading: Reading) -> None:
        self.curve.observe(units, reading.compute + reading.converge, reading.transfer)


def _line(x: Sequence[float], t: Sequence[float]) -> Line:
    """Fit a line by least squares, gap and slope not negative."""
    centre, middle = fmean(x), fmean(t)
    if min(x) == max(x):
        return 0.0, middle / x[0]
    square = sum((a - centre) ** 2 for a in x)
    slope = sum((a - centre) * b for a, b in zip(x, t, strict=True)) / square
    gap = middle - slope * centre
    if slope < 0:
        return middle, 0.0
    if gap < 0:
        return 0.0, sum(a * b for a, b in zip(x, t, strict=True)) / sum(a * a for a in x)
    return gap, slope
