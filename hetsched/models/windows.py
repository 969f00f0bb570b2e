"""The evidence of one curve: the times of the last five runs at each size, of which medians count.

Shares move by a few units from run to run, so each size is measured only a few times, and
neighbouring sizes correct each other. The logarithm of seconds per unit is modelled as a random
walk over the logarithm of size, observed with noise (Wahba, J. R. Stat. Soc. B 40, 1978: the
estimate is a linear smoothing spline, computed by the smoother of Rauch, Tung & Striebel, AIAA J.
3, 1965). Without noise it passes through every median; with noise, a size measured once follows
neighbours that were measured often.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from itertools import chain, pairwise
from operator import attrgetter
from statistics import fmean, median
from typing import Literal, NamedTuple

import numpy as np
from msgspec.structs import replace

from hetsched.models.confidence import MAX_MIDDLE_RATIO, Knot, knot_of, robust_median
from hetsched.models.curves import EQUAL, Floats
from hetsched.models.samples import MAX_SIZE_RATIO, Sample
from hetsched.models.validation import require_observation, require_pairs

DEPTH = 5
"""Runs that count at each size: the median of five isn't moved by two wild ones, and three show
that a device has changed."""
MAX_SIZES = 32
"""Sizes kept per curve; every run may add one."""
MAX_STEP = 10.0
"""Ratio of two times, beyond what their sizes explain, from which they contradict each other: a
kernel's steps may multiply to 6 between two sizes, and wild times are 20 times as long and more.
With 5 a device tried sizes beyond two such steps that it had measured once."""
MIN_CHANGE = 1.3
"""Ratio of three runs in a row to those before from which a device has another speed."""
WALK_DEVIATION = 0.15
"""Standard deviation of the walk per unit of log size: 5 % between sizes that differ by a tenth,
12 % between sizes that differ by a factor of two. It matters less with less noise."""
CERTAIN_ERRORS = 3.0
"""Standard errors beyond which a difference isn't noise: one in a thousand is by chance."""
MIN_NOISE, MAX_NOISE = 0.025, 0.1
"""Standard deviation of the logarithm of a time: at least in tests, because repeats may agree by
chance; at most, because outliers explain larger ones."""
MIN_TRUSTED_COUNT = 3
"""Observations whose median a single outlier can't move far."""
MEDIAN_VARIANCE = math.pi / 2
"""Variance of a median over that of a mean, for normal noise."""
DEVIATION_PER_MAD = 1.4826
"""Standard deviation over median absolute deviation, for normal noise."""

SizedSamples = Mapping[float, tuple[Sample, ...]]
"""By units, and of each size by run."""
_run_of, _seconds_of = attrgetter("run"), attrgetter("seconds")


class Evidence(NamedTuple):
    """What counts of a curve's observations, by units: (n,) float64 each, but `times`.

    `medians`: seconds as measured; `seconds`: corrected by neighbouring sizes. `counts`: of
    observations. `noise`: standard deviation of the logarithm of a time; 0 without repeats.
    """

    times: Mapping[float, list[float]]
    units: Floats
    medians: Floats
    seconds: Floats
    counts: Floats
    noise: float


class Windows:
    """The last times of each size.

    `max_sizes`: of the two nearest to each other the one not seen for longer is dropped, so that
    far sizes, perhaps beyond a step, stay known. `corrects`: whether neighbouring sizes correct
    each other; "noise": once repeats of one differ. `repeats`: observations of sizes already
    measured (the papers' accuracy points).
    """

    def __init__(
        self,
        observations: Iterable[tuple[float, float]] = (),
        *,
        max_sizes: int | None = None,
        corrects: bool | Literal["noise"] = False,
    ) -> None:
        self._max_sizes, self._corrects = max_sizes, corrects is True
        self._corrects_noise = corrects == "noise"
        # By size, the one seen last at the end; of each the samples, oldest first.
        self._samples: dict[float, tuple[Sample, ...]] = {}
        self._medians: dict[float, float] = {}
        self._evidence: Evidence | None = None
        self._added = 0
        self.repeats = 0
        for units, seconds in require_pairs(observations):
            self.add(units, seconds)

    def add(self, units: float, seconds: float) -> None:
        self.put(Sample("total", *require_observation(units, seconds), run=self._added + 1))
        self.follow_change()

    def put(self, sample: Sample) -> None:
        self._added += 1
        known = self._samples.pop(sample.units, ())
        self.repeats += bool(known)
        if self._corrects_noise and known:
            first = known[0].seconds
            self._corrects |= abs(sample.seconds - first) > EQUAL * first
        self._set(sample.units, (*known[1 - DEPTH :], sample))
        if self._max_sizes is not None and len(self._samples) > self._max_sizes:
            ages = {size: age for age, size in enumerate(self._samples)}
            close = min(pairwise(sorted(ages)), key=lambda pair: pair[1] / pair[0])
            self._set(min(close, key=ages.__getitem__), ())

    def _set(self, size: float, samples: tuple[Sample, ...]) -> None:
        self._evidence = None
        if samples:
            self._samples[size] = samples
            self._medians[size] = robust_median(list(map(_seconds_of, samples)))
        else:
            del self._samples[size], self._medians[size]

    def follow_change(self) -> None:
        """Let a change of speed that the last three runs show hold for all sizes.

        What was measured before is dropped, or scaled where a size has nothing else: other shares
        would meet times of the old speed, and without them steps would have to be found again.
        """
        runs = sorted({*map(_run_of, chain.from_iterable(self._samples.values()))})
        if len(runs) < 5 or not self._corrects:
            return  # of two runs before, one may be wild
        old: dict[float, tuple[Sample, ...]] = {}
        recent: dict[float, tuple[Sample, ...]] = {}
        for size in sorted(self._samples):
            samples = self._samples[size]
            start = bisect_left(samples, runs[-3], key=_run_of)
            recent[size] = samples[start:]
            if start:
                old[size] = samples[:start]
        known = _credible(old)
        paces = [robust_median(list(map(_seconds_of, known[size]))) / size for size in known]
        ratios: dict[int, list[float]] = {}
        for sample in chain.from_iterable(recent.values()):
            ratio = _slowdown(sample, known, paces)
            if ratio is not None:
                ratios.setdefault(sample.run, []).append(ratio)
        of_runs = [robust_median(found) for found in ratios.values()]
        is_other = of_runs and (min(of_runs) > MIN_CHANGE or max(of_runs) < 1 / MIN_CHANGE)
        if len(of_runs) < 3 or not is_other:
            return
        factor = robust_median(of_runs)
        if not 1 / MAX_STEP < factor < MAX_STEP:
            old.clear()  # what it is compared with may have been held up twice
        for size, samples in recent.items():
            scaled = [replace(s, seconds=factor * s.seconds) for s in old.get(size, ())]
            self._set(size, samples or tuple(scaled))

    def __len__(self) -> int:
        return len(self._samples)

    def __iter__(self) -> Iterator[Sample]:
        """Iterate over all samples, by run; those that make equal windows."""
        return iter(sorted(chain.from_iterable(self._samples.values()), key=_run_of))

    def copy(self) -> Windows:
        other = copy(self)
        other._samples, other._medians = self._samples.copy(), self._medians.copy()
        return other

    def runs(self, largest: float) -> int:
        return len({s.run for x, known in self._samples.items() if x <= largest for s in known})

    def latest(self) -> list[tuple[float, float, int]]:
        """Return units, median seconds and number of observations, the latest size first."""
        sizes = reversed(self._samples)
        return [(size, self._medians[size], len(self._samples[size])) for size in sizes]

    def knots(self) -> list[Knot]:
        return [knot_of(size, times) for size, times in self.evidence.times.items()]

    @property
    def evidence(self) -> Evidence:
        """What counts, computed once after each change (don't modify it)."""
        if self._evidence is None:
            kept: SizedSamples = {x: self._samples[x] for x in sorted(self._samples)}
            if self._corrects:
                kept = _credible(kept)
            times = {x: list(map(_seconds_of, known)) for x, known in kept.items()}
            sizes, counts = list(kept), list(map(len, times.values()))
            # Of two samples one may be left out.
            medians = [
                self._medians[x] if n > 1 else times[x][0]
                for x, n in zip(sizes, counts, strict=True)
            ]
            noise = noise_deviation(list(times.values()))
            seconds = smoothed(sizes, medians, counts, noise) if self._corrects else medians
            self._evidence = Evidence(
                times,
                np.array(sizes),
                np.array(medians),
                np.array(seconds),
                np.array(counts, dtype=np.float64),
                noise,
            )
        return self._evidence

    @property
    def nbytes(self) -> int:
        # Estimate, of a sample and of what belongs to its size
        return 300 * sum(map(len, self._samples.values()))


def _slowdown(sample: Sample, known: SizedSamples, paces: Sequence[float]) -> float | None:
    """Return the time over that by the next `known` sizes, of `paces`; None: they can't tell.

    Between two sizes, and beyond all, may be a step; and a size measured once may be wild.
    """
    sizes, units, pace = list(known), sample.units, sample.seconds / sample.units
    if not sizes or not sizes[0] / MAX_SIZE_RATIO <= units <= sizes[-1] * MAX_SIZE_RATIO:
        return None
    start, end = bisect_left(sizes, units), bisect_right(sizes, units)
    if len(known.get(units, ())) < 2:
        start, end = max(0, start - 1), end + 1
    return pace / min(max(pace, min(paces[start:end])), max(paces[start:end]))


def _credible(samples: SizedSamples) -> SizedSamples:
    """Return the samples of each size, without those that others contradict.

    From three on, the median takes care of one. Of two that disagree, the one counts that fits
    the next sizes, or the shorter. A single one is left out if all its neighbours contradict it:
    that with most of them first; of two the longer if their sizes are about the same, else the
    older, which led to such another share.
    """
    if len(samples) < 2 or min(map(len, samples.values())) >= MIN_TRUSTED_COUNT:
        return samples
    kept = dict(samples)
    for size, known in samples.items():
        if len(known) == 2:
            kept[size] = _fitting(known, kept)
    while wild := list(_contradicted(kept)):
        del kept[max(wild)[-1]]
    return kept


def _fitting(pair: tuple[Sample, ...], kept: SizedSamples) -> tuple[Sample, ...]:
    """Return both samples of a size, or the one that fits the next sizes if they disagree."""
    shorter, longer = sorted(pair, key=_seconds_of)
    if longer.seconds < MAX_MIDDLE_RATIO * shorter.seconds:
        return pair
    paces = [seconds / size for size, seconds in _beside(pair, kept)]
    expected = shorter.units * math.exp(fmean(map(math.log, paces))) if paces else 0.0
    return (longer,) if expected**2 > shorter.seconds * longer.seconds else (shorter,)


def _contradicted(kept: SizedSamples) -> Iterator[tuple[int, bool, int, float]]:
    """Yield each size measured once whose time is far from what its neighbours allow.

    That is from a neighbour's time to the same time per unit. Before it in the tuple: in which
    order they are left out, the last first.
    """
    for size, known in kept.items():
        beside = _beside(known, kept) if len(known) == 1 else []
        if not beside:
            continue
        sample, most, least, is_near = known[0], 0.0, math.inf, False
        for other, seconds in beside:
            most = max(most, seconds, seconds * size / other)
            least = min(least, seconds, seconds * size / other)
            is_near = is_near or other / MAX_SIZE_RATIO <= size <= other * MAX_SIZE_RATIO
        is_long = sample.seconds > MAX_STEP * most
        if is_long or sample.seconds * MAX_STEP < least:
            yield len(beside), is_long and is_near, -sample.run, size


def _beside(samples: tuple[Sample, ...], kept: SizedSamples) -> list[tuple[float, float]]:
    """Return the next smaller and the next larger size of other runs, and their median seconds."""
    runs, sizes = {*map(_run_of, samples)}, list(kept)
    at = bisect_left(sizes, samples[0].units)
    found = []
    for others in (reversed(sizes[:at]), sizes[at + 1 :]):
        for size in others:
            times = [s.seconds for s in kept[size] if s.run not in runs]
            if times:
                found.append((size, robust_median(times)))
                break
    return found


def noise_deviation(windows: Sequence[Sequence[float]]) -> float:
    """Estimate the standard deviation of the logarithm of repeated times; 0 without repeats."""
    deviations: list[float] = []
    repeated = 0
    for times in windows:
        if len(times) > 1:
            repeated += 1
            logs = list(map(math.log, times))
            centre = median(logs)
            for log in logs:
                deviations.append(abs(log - centre))
    if not repeated:
        return 0.0
    count = len(deviations)
    estimate = DEVIATION_PER_MAD * median(deviations) * math.sqrt(count / (count - repeated))
    return min(estimate, MAX_NOISE)


def smoothed(
    units: Sequence[float], seconds: Sequence[float], counts: Sequence[int], sigma: float
) -> list[float]:
    """Correct the time of each size by its neighbours, within its noise. O(n).

    Within two standard errors of the median for sizes measured `MIN_TRUSTED_COUNT` times.
    `sigma`: standard deviation of the logarithm of one time.
    """
    if len(units) == 1:
        return list(seconds)
    steps = [WALK_DEVIATION**2 * math.log(larger / smaller) for smaller, larger in pairwise(units)]
    paces = [math.log(time / size) for size, time in zip(units, seconds, strict=True)]
    variances = [MEDIAN_VARIANCE * sigma**2 / count for count in counts]
    _inflate_outliers(paces, counts, steps, variances, max(sigma, 2 * MIN_NOISE))
    estimates = _walk(paces, variances, steps)
    result = []
    for size, time, pace, count, variance, estimate in zip(
        units, seconds, paces, counts, variances, estimates, strict=True
    ):
        margin = 2 * math.sqrt(variance) if count >= MIN_TRUSTED_COUNT else math.inf
        near = min(max(estimate, pace - margin), pace + margin)
        result.append(time if variance == 0 else size * math.exp(near))
    return result


def _inflate_outliers(
    paces: Sequence[float],
    counts: Sequence[int],
    steps: Sequence[float],
    variances: list[float],
    noise: float,
) -> None:
    """Raise the variances of sizes measured few times that are too slow, as beside other work."""
    if sum(counts) < MIN_TRUSTED_COUNT or min(counts) >= MIN_TRUSTED_COUNT:
        return
    usual = [MEDIAN_VARIANCE * noise**2 / count for count in counts]
    for i, estimate in enumerate(_walk(paces, usual, steps)):
        excess = (paces[i] - estimate) / CERTAIN_ERRORS
        if counts[i] < MIN_TRUSTED_COUNT and excess > 0 and excess**2 > usual[i]:
            variances[i] = usual[i] * (excess**2 / usual[i]) ** 2


def _walk(
    observed: Sequence[float], variances: Sequence[float], steps: Sequence[float]
) -> list[float]:
    """Return the most likely walk with variances `steps`, observed with these `variances`."""
    means, errors = [observed[0]], [variances[0]]
    for value, variance, step in zip(observed[1:], variances[1:], steps, strict=True):
        predicted = errors[-1] + step
        gain = predicted / (predicted + variance)
        means.append(means[-1] + gain * (value - means[-1]))
        errors.append((1 - gain) * predicted)
    for i in range(len(steps) - 1, -1, -1):
        means[i] += errors[i] / (errors[i] + steps[i]) * (means[i + 1] - means[i])
    return means
