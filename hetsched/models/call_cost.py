"""What a core's kernel costs per call, in units: learnt from chunks of different sizes. Pure.

A chunk of n units takes a + b n seconds. A matrix product, for example, packs its right side anew
in each call. The cost is kept as a / b, the units that would take as long as a call: a change of
speed doesn't change it. Chunks are compared within a run, and of each run only what its chunks
prove counts, a lower confidence limit, so noise doesn't invent a cost.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Sequence
from statistics import median, median_low

import numpy as np
from msgspec.structs import replace

from hetsched.models.curves.segments import Floats
from hetsched.models.evidence.samples import CurveName, PhaseTimes, Sample, TimedPhases

MIN_SIZE_RATIO = 2.0
"""Ratio of the largest to the smallest chunk without which a run shows nothing. Arbitrary."""
MIN_CHUNKS = 6
"""Chunks without which a run shows nothing: a line takes two, their scatter the others."""
STANDARD_ERRORS = 3.0
"""Between the estimate and what counts: one in a thousand is larger by chance."""
MAX_RESIDUALS = 4.0
"""Chunks farther off the line than this many median residuals are interrupted ones, and don't
count. Arbitrary."""
MIN_FRACTION = 0.01
"""Costs below this part of the run's largest chunk don't matter and count as none."""
MAX_CHUNKS = 16.0
"""Limit of a cost, in the largest chunks of the run: beyond it units hardly cost anything."""
MAX_UNITS = 1e12
"""Limit of a stored cost: a damaged file must not make times infinite."""
NO_COST = 1e-9
"""Units that stand for no cost: observations are positive."""
MIN_RUNS, MIN_RUNS_OF_NO_COST, MAX_RUNS = 2, 5, 16
"""Runs that settle that there is a cost; that there is none, since noise may hide it; and the
latest runs that count."""
MIN_REVISION = 0.01
"""Smaller changes of a share's time by a revised cost don't matter."""

MIN_DETERMINANT = 1e-9
"""Of a matrix whose diagonal is scaled to 1, for its inverse to be exact enough. Arbitrary."""

WHOLE_SHARES: frozenset[CurveName] = frozenset(("total", "cold"))
"""Curves of whole shares, which consist of several calls."""


class CallCosts:
    """The cost per call that each of the last runs proved, and how much of it shares exclude.

    Attributes
    ----------
    excluded : float, units
        The cost of a call that whole shares exclude; 0: none that matters, or unknown.
    """

    def __init__(self) -> None:
        self._costs: deque[float] = deque(maxlen=MAX_RUNS)
        self.excluded = 0.0

    def __iter__(self) -> Iterator[float]:
        return iter(self._costs)

    def add(self, units: float) -> None:
        """Add what a run proved."""
        self._costs.append(min(units, MAX_UNITS))

    def assume_excluded(self) -> None:
        """Let whole shares, which were stored, exclude what is known."""
        self.excluded = _cost_of(self._costs)

    @property
    def is_settled(self) -> bool:
        """Whether enough runs show the cost, or that there is none."""
        count = len(self._costs)
        return count >= MIN_RUNS_OF_NO_COST or (count >= MIN_RUNS and _cost_of(self._costs) > 0)

    def exclude(self, samples: Sequence[Sample]) -> tuple[list[Sample], bool]:
        """Return the next run's observations with whole shares as they would be without calls.

        Returns
        -------
        list of Sample
        bool
            Whether the run has changed what is known of the cost, so that times of earlier whole
            shares exclude another one.
        """
        size = next((s.seconds for s in samples if s.curve == "call_size"), None)
        kept = [sample for sample in samples if sample.curve != "call_size"]
        if size is None:
            return kept, False
        costs = [*self._costs, *(s.seconds for s in kept if s.curve == "call")]
        cost = _cost_of(costs[-MAX_RUNS:])
        is_changed = abs((1 + cost / size) / (1 + self.excluded / size) - 1) > MIN_REVISION
        if is_changed:
            self.excluded = cost
        factor = 1 / (1 + self.excluded / size)
        return [_scaled(s, factor) if s.curve in WHOLE_SHARES else s for s in kept], is_changed


def _cost_of(costs: Sequence[float]) -> float:
    """Return the median, units; 0: none that matters, or unknown."""
    middle = median_low(costs) if costs else 0.0
    return middle if middle > NO_COST else 0.0


def _scaled(sample: Sample, factor: float) -> Sample:
    return replace(sample, seconds=sample.seconds * factor)


def call_samples(chunks: TimedPhases, planned: Sequence[int] | None = None) -> list[Sample]:
    """Return the observations of calls from the chunks of a core's run.

    "call_size": the mean units of a call; "call": its cost, if chunks of clearly different sizes
    show it. Both as the seconds of one unit. A kernel's first call in a process doesn't count.
    Processor times count where they are known, so other processes don't hide the cost.

    Parameters
    ----------
    chunks : sequence of (int, ChunkTimes), units
    planned : sequence of int, units, optional
        The planned chunks, if records of `chunks` were merged: only their size counts then.
    """
    if planned is not None:
        return [Sample("call_size", 1, sum(planned) / len(planned))]
    warm = [(units, times) for units, times in chunks if not times.cold] or list(chunks)
    if not warm:
        return []
    sizes = [units for units, _ in warm]
    samples = [Sample("call_size", 1, sum(sizes) / len(sizes))]
    if len(sizes) < MIN_CHUNKS or max(sizes) < MIN_SIZE_RATIO * min(sizes):
        return samples
    seconds = np.array([_processor_seconds(times) for _, times in warm])
    if np.all(seconds > 0):
        cost = proven_cost(np.array(sizes, dtype=np.float64), seconds)
        samples.append(Sample("call", 1, max(cost, NO_COST)))
    return samples


def _processor_seconds(times: PhaseTimes) -> float:
    """Return the time of a kernel without that of other processes on its core, if it is known."""
    wall = times.compute[1] - times.compute[0]
    return wall if times.busy is None else min(times.busy, wall)


def proven_cost(units: Floats, seconds: Floats) -> float:
    """Return the cost of a call that one run proves, units; 0: none that matters.

    Parameters
    ----------
    units, seconds : (n,) float64, n >= 3
        Of its chunks, of different sizes; both positive.
    """
    line = _Line.through(units, seconds)
    residuals = np.abs(line.residuals(units, seconds))
    usual = median(residuals.tolist())  # NumPy's is a hundred times slower on a few numbers
    near = residuals <= MAX_RESIDUALS * usual + 1e-9
    if not near.all() and near.sum() >= MIN_CHUNKS and np.ptp(units[near]) > 0:
        units, seconds = units[near], seconds[near]
        line = _Line.through(units, seconds)
    largest = float(units.max())
    cost = line.call - STANDARD_ERRORS * line.standard_error
    if cost <= 0:
        return 0.0
    if line.unit <= 0:
        return MAX_CHUNKS * largest
    in_units = min(cost / line.unit, MAX_CHUNKS * largest)
    return in_units if in_units >= MIN_FRACTION * largest else 0.0


class _Line:
    """seconds = call + unit * units, with the least sum of squared relative errors."""

    def __init__(self, call: float, unit: float, standard_error: float) -> None:
        self.call = call
        self.unit = unit
        self.standard_error = standard_error
        """Of `call`, by the scatter of the chunks."""

    @classmethod
    def through(cls, units: Floats, seconds: Floats) -> _Line:
        scale = units.max()
        rows = np.column_stack((1 / seconds, units / scale / seconds))
        inverse = _inverse(rows.T @ rows)
        call, unit = inverse @ rows.sum(axis=0)
        line = cls(float(call), float(unit / scale), 0.0)
        freedom = max(1, len(units) - 2)
        variance = float(np.square(line.residuals(units, seconds)).sum()) / freedom
        line.standard_error = math.sqrt(max(0.0, variance * float(inverse[0, 0])))
        return line

    def residuals(self, units: Floats, seconds: Floats) -> Floats:
        """Return the relative errors, (n,) float64."""
        return np.asarray(1 - (self.call + self.unit * units) / seconds)


def _inverse(matrix: Floats) -> Floats:
    """Return the inverse of a symmetric 2 x 2 matrix; of a singular one the pseudo-inverse.

    The latter takes ten times as long, and every run asks for it.
    """
    (a, b), (_, c) = matrix.tolist()
    determinant = a * c - b * b
    if determinant <= MIN_DETERMINANT * a * c:
        return np.asarray(np.linalg.pinv(matrix))
    inverse: Floats = np.array(((c, -b), (-b, a))) / determinant
    return inverse
