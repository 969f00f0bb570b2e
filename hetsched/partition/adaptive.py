"""The split of an iterative job by what its own iterations show: `auto`.

Clarke's loop tries the split that its models predict to be best. Where a device would get more
rows than it ever had, or a cliff lies between two measured sizes, that is a guess, and a wrong one
costs as much as the cliff is deep. So each such split is an `Option`: it may turn out well, or one
iteration takes as long as the cliff is deep and the rows go back. What is known is an option with
a single outcome. The best one is taken if it saves anything over the iterations that remain.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from statistics import median, median_low

from hetsched.errors import DataError
from hetsched.job import IterationSeconds
from hetsched.models import PiecewiseLinear, Polyline, SpeedFunction
from hetsched.models.windows import CERTAIN_ERRORS, MAX_SIZES
from hetsched.partition.balancer import (
    CLIFF,
    FurtherRuns,
    MigrationCost,
    is_measured,
    split_with_unmeasured,
    spread_over,
)
from hetsched.partition.distribution import MAX_LOAD, Distribution, Limits, Shares, predict
from hetsched.partition.equal_times import geometric
from hetsched.partition.imbalance_factor import iteration_seconds
from hetsched.partition.options import MIN_GAIN, Option
from hetsched.partition.phases import DeviceTime, parse_readings

WINDOW = 15
"""Reports of a size that count: their median. Beside other work these vary by a fifth, and a gain
of a tenth needs that many to show."""
CHANGED = 1.12
"""Ratio, at least, by which the last three reports of a size must differ from those before, and by
two standard deviations, to show another speed of the device."""
PRESUMED_NOISE = 0.06
"""Standard deviation of the logarithm of a time before any size was measured twice."""

PART = 0.35
"""Part of the way into a cliff, by logarithms, that is tried next; it is as probable that the
cliff is there."""
EVEN_ODDS = 0.5
"""Probability that times rise gradually between two sizes instead, and that a device is as fast
with more than its memory holds."""
GROWTH = 8.0
"""Times the largest size that was measured, beyond which no share goes in one step; nor does a
share that was reported once become less than its part, as the report may be wild."""
FALL = 4.0
"""Presumed slowdown beyond a cliff that wasn't measured."""
WILD = 10.0
"""Slowdown that a single report doesn't show: cliffs are less steep, wild reports steeper."""
FIRST_EXCESS = 1 / 64
"""Part of a memory by which it is exceeded first: a few rows show what the next ones cost, as what
doesn't fit is streamed or paged, and a line through them holds for `GROWTH` times as many."""
LOOK = 0.02
"""Part of the time to come that may go into an iteration with one unit on a device that earlier
jobs found too slow for any: else one wrong time would exclude it for ever."""


class AdaptiveBalancer:
    """The balancer of `auto`.

    `capacities`: units that fit in each device's memory; beyond, it is probably slow. `models`:
    seconds of so many units on each device, from earlier jobs: they count until it is measured in
    this one.
    """

    def __init__(
        self,
        load: int,
        capacities: Limits,
        migration_cost: MigrationCost,
        further_runs: FurtherRuns,
        models: Sequence[SpeedFunction | None],
    ) -> None:
        self._load = load
        self._unlimited = [load] * len(models)
        self._migration_cost = migration_cost
        self._further_runs = further_runs
        self._devices = [_Device(*each) for each in zip(capacities, models, strict=True)]
        self._lost: set[int] = set()
        self._present: Shares | None = None  # The last measured shares
        self._totals: deque[float] = deque(maxlen=WINDOW)  # Seconds of iterations with these
        self._next: Distribution | None = None

    def tell(self, times: Sequence[DeviceTime], shares: Shares) -> None:
        if shares != self._present:
            self._present = shares
            self._totals.clear()
        self.learn(shares, times)
        self._next = None

    def learn(self, shares: Shares, times: Sequence[DeviceTime]) -> None:
        """Learn from an iteration with other shares than `ask` returned."""
        readings = parse_readings(times, shares)
        for device, share, reading in zip(self._devices, shares, readings, strict=True):
            if reading is not None and share:
                device.add(share, reading.busy)
        if shares == self._present:
            self._totals.append(
                iteration_seconds([each or IterationSeconds() for each in readings])
            )

    def lose(self, device: int) -> None:
        self._lost.add(device)
        self._next = self._present = None

    def restore(self, device: int) -> None:
        self._lost.discard(device)
        self._next = self._present = None

    def ask(self) -> Distribution:
        """Return the split of the next iteration. Raises DataError, as all devices may be lost."""
        if self._next is None:
            present = self._present
            if present is None or any(map(self._is_to_measure, self._used())):
                self._next = self._first_split()
            else:
                self._next = self._choose(present)
        return self._next

    # ---- splits

    def _used(self) -> list[int]:
        used = [i for i in range(len(self._devices)) if i not in self._lost]
        if not used:
            raise DataError(f"all {len(self._devices)} devices are lost")
        return used

    def _is_to_measure(self, device: int) -> bool:
        """Return whether the next iteration is to show a time of a device that hasn't any."""
        each = self._devices[device]
        if each.times:
            return False
        if not is_measured(each.curve):
            return True
        to_come = self._further_runs(0) * median(self._totals)
        return float(each.curve.time(1)) <= LOOK * to_come

    def _partition(self, models: Sequence[SpeedFunction], limits: Sequence[int]) -> Distribution:
        """Split the load over the devices in use, beyond `limits` if these leave no room."""
        used = self._used()
        if sum(limits[i] for i in used) < self._load:
            limits = self._unlimited
        part = self._split_over(used, models, self._load, limits)
        held, load = dict[int, int](), self._load
        for i in used:
            if part.shares[i] < (least := self._least_share(i)) <= load:
                held[i], load = least, load - least
        others = [i for i in used if i not in held]
        if not held or math.isnan(part.makespan) or sum(limits[i] for i in others) < load:
            return part
        shares = [*self._split_over(others, models, load, limits).shares]
        for i, least in held.items():
            shares[i] = least
        return predict(models, tuple(shares))

    def _split_over(
        self,
        used: Sequence[int],
        models: Sequence[SpeedFunction],
        load: int,
        limits: Sequence[int],
    ) -> Distribution:
        part = split_with_unmeasured(
            geometric, [models[i] for i in used], load, [limits[i] for i in used]
        )
        return spread_over(part, used, len(self._devices))

    def _least_share(self, device: int) -> int:
        """Return what a device gets to be measured, or keeps while it was reported only once."""
        if self._present is None:
            return 0
        if self._is_to_measure(device):
            return 1
        share = self._present[device]
        is_single = len(self._devices[device].times.get(share, ())) == 1
        return math.ceil(share / GROWTH) if is_single else 0

    def _first_split(self) -> Distribution:
        """Split the load without an iteration to compare with: within the memories if it fits.

        A device whose memory nobody knows gets half an equal share, if that of others is known:
        beyond a cliff it is far slower.
        """
        used = self._used()
        limits = [min(self._load, device.capacity or self._load) for device in self._devices]
        unknown = [i for i in used if not self._devices[i].capacity]
        if len(unknown) < len(used) and not any(self._devices[i].times for i in used):
            for i in unknown:
                limits[i] = min(limits[i], math.ceil(self._load / (2 * len(used) - len(unknown))))
        return self._partition([device.curve for device in self._devices], limits)

    # ---- the choice

    def _choose(self, present: Shares) -> Distribution:
        models = [device.curve for device in self._devices]
        now = best = predict(models, present)
        remaining = self._further_runs(0)
        least = self._least_gain()
        may_gain = self._may_gain(present, now, least)
        options = [*self._options(present, models)] if may_gain else []
        # What is known comes first: a trial must save more than that.
        options.sort(key=lambda each: -each[1].outcomes[0][0])
        for is_known in (True, False):
            present_seconds, most = best.makespan, 0.0
            for goal, option in options:
                survival, seconds, _ = option.outcomes[0]
                is_other = (survival == 1) is is_known and goal.shares != present
                if is_other and present_seconds - seconds > least:
                    value = option.value(present_seconds, remaining)
                    if value > most:
                        best, most = goal, value
        return best

    def _may_gain(self, present: Shares, now: Distribution, least: float) -> bool:
        """Return whether any split may save more than `least` seconds: finding one takes 1 ms.

        In each other split a device has more than now, so it takes at least the shortest time,
        unless a device has nothing now, or is faster than a cliff shows.
        """
        used = self._used()
        shortest = now.makespan / (1 + now.spread)
        return (
            now.makespan - shortest > least
            or not all(present[i] for i in used)
            or any(self._devices[i].cliff() is not None for i in used)
        )

    def _least_gain(self) -> float:
        """Return the gain, seconds per iteration, that isn't just noise."""
        noises = [noise for device in self._devices if (noise := device.noise) is not None]
        error = max(noises, default=PRESUMED_NOISE) / math.sqrt(len(self._totals))
        return max(MIN_GAIN, CERTAIN_ERRORS * error) * median(self._totals)

    def _options(
        self, present: Shares, models: Sequence[SpeedFunction]
    ) -> Iterator[tuple[Distribution, Option]]:
        """Yield splits that may be better: parts of the way into what isn't known."""
        used = self._used()
        cliffs = {i: cliff for i in used if (cliff := self._devices[i].cliff()) is not None}
        for part in (0.0, PART) if cliffs else (0.0,):
            reaches = {i: self._devices[i].reach(cliffs.get(i), part) for i in used}
            limits, curves = list(self._unlimited), list(models)
            for i, reach in reaches.items():
                limits[i] = min(limits[i], reach.limit)
                curves[i] = reach.curve
            goal = self._partition(curves, limits)
            promised = goal
            if any(each.promise and goal.shares[i] == limits[i] for i, each in reaches.items()):
                for i, reach in reaches.items():
                    limits[i] = min(self._load, reach.promise or reach.limit)
                promised = self._partition(curves, limits)
            survival, seconds = 1.0, goal.makespan
            for i, reach in reaches.items():
                if goal.shares[i] > reach.edge:
                    survival = min(survival, reach.survival)
                    seconds = max(seconds, reach.pace * goal.shares[i])
            yield self._trial(present, goal, promised, survival, seconds)
        if cliffs:  # times may as well rise gradually between the two sizes
            plain = self._partition(models, self._unlimited)
            paces = [cliff.pace * plain.shares[i] for i, cliff in cliffs.items()]
            yield self._trial(present, plain, plain, EVEN_ODDS, max(plain.makespan, *paces))

    def _trial(
        self,
        present: Shares,
        goal: Distribution,
        promised: Distribution,
        survival: float,
        fall: float,
    ) -> tuple[Distribution, Option]:
        """Return `goal`, and its option: it takes `fall` seconds once if a device is slower."""
        good = (survival, promised.makespan, goal.makespan)
        cost = self._migration_cost(present, goal.shares)
        return goal, Option((good, (1 - survival, math.inf, fall)), cost)


@dataclass(frozen=True)
class _Reach:
    """Up to where a device may go: `limit` units; beyond `edge` it is as fast as `curve` says
    with a probability of `survival`, else `pace` seconds a unit. `promise`: what is within reach
    then, if that is more than `limit`."""

    curve: SpeedFunction
    limit: int
    edge: float = math.inf
    survival: float = 1.0
    pace: float = 0.0
    promise: int = 0


class _Device:
    """The times of one device by size, units. `capacity`: what its memory holds; None: unknown."""

    def __init__(self, capacity: int | None, model: SpeedFunction | None) -> None:
        self.capacity = capacity or None
        self._model = PiecewiseLinear() if model is None else model  # Before its first time
        self.times: dict[int, deque[float]] = {}
        self._curve: Polyline | None = None

    def add(self, units: int, seconds: float) -> None:
        """Add a report. A change of speed rescales the times of all other sizes."""
        self._curve = None
        times = self.times.pop(units, None) or deque(maxlen=WINDOW)
        times.append(seconds)
        self.times[units] = times
        if len(self.times) > MAX_SIZES:
            del self.times[next(iter(self.times))]
        before, last = [*times][:-3], [*times][-3:]
        if len(before) < 2:
            return
        usual, ratio = median_low(before), max(CHANGED, math.exp(2 * (self.noise or 0.0)))
        if min(last) > ratio * usual or ratio * max(last) < usual:
            factor = median(last) / usual
            self.times = {
                x: deque(last if x == units else [factor * median_low(t)], WINDOW)
                for x, t in self.times.items()
            }

    @property
    def noise(self) -> float | None:
        """About the deviation of a time's logarithm; None if no size was repeated."""
        steps: list[float] = []
        for times in self.times.values():
            kept = [*times]
            if len(kept) > 2:
                kept.remove(max(kept))  # it may be wild
            steps += [
                abs(math.log(b / a)) for a, b in pairwise(kept) if b < WILD * a < WILD**2 * b
            ]
        return median(steps) if steps else None

    def _points(self) -> list[tuple[int, float]]:
        """Return the times that count, by size: contention only lengthens them.

        So the shorter of two counts, and no size takes longer than a larger one. A single report
        of a far slower pace doesn't count.
        """
        paces = {x: median_low(times) / x for x, times in self.times.items()}
        slow = [x for x in paces if paces[x] > WILD * min(paces.values())]
        is_single = sum(len(self.times[x]) for x in slow) == 1
        sizes = sorted(x for x in paces if not (is_single and x in slow))
        least = [*accumulate((median_low(self.times[x]) for x in reversed(sizes)), min)]
        return list(zip(sizes, reversed(least), strict=True))

    @property
    def curve(self) -> SpeedFunction:
        """The times by size, linear in between; up to the memory's capacity at the pace below."""
        if not self.times:
            return self._model
        if self._curve is None:
            points, capacity = self._points(), self.capacity
            largest, seconds = points[-1]
            if capacity is not None and points[0][0] < capacity < largest:
                if capacity not in dict(points):
                    below, t = max(point for point in points if point[0] < capacity)
                    points = sorted([*points, (capacity, t / below * capacity)])
                slope = (seconds - dict(points)[capacity]) / (largest - capacity)
                excess = round(GROWTH * (largest - capacity))
                further = max(slope, seconds / largest) * (capacity + excess - largest)
                points.append((capacity + excess, seconds + further))
            self._curve = Polyline(points)
        return self._curve

    def cliff(self) -> _Cliff | None:
        """Return the first two sizes with a cliff between; beyond a memory the line is trusted."""
        memory = math.inf if self.capacity is None else self.capacity
        trusted = memory if self.capacity is None else self._first_excess(self.capacity)
        for (small, t), (large, u) in pairwise(self._points()):
            is_on_line = small >= memory or memory < large <= trusted
            if u / large > CLIFF * t / small and not is_on_line:
                return _Cliff(small, large, u / large)
        return None

    def reach(self, cliff: _Cliff | None, part: float) -> _Reach:
        """Return how far to go: a part of the way into a cliff, or beyond what was measured."""
        if not self.times:
            return _Reach(self._model, self.capacity or MAX_LOAD)
        largest, seconds = max(self.times), self.curve.time
        if cliff is not None:
            below = Polyline([point for point in self._points() if point[0] <= cliff.small])
            limit = round(cliff.small * (cliff.large / cliff.small) ** part)
            return _Reach(below, limit, cliff.small, 1 - part, cliff.pace)
        if self.capacity is None:
            return _Reach(self.curve, math.ceil(GROWTH * largest), promise=MAX_LOAD)
        if largest > self.capacity:
            limit = self.capacity + round(GROWTH * (largest - self.capacity))
            return _Reach(self.curve, limit)
        pace = FALL * seconds(self.capacity) / self.capacity
        limit = self._first_excess(self.capacity)
        promise = self.capacity + round(GROWTH * (limit - self.capacity))
        return _Reach(self.curve, limit, self.capacity, EVEN_ODDS, pace, promise)

    def _first_excess(self, capacity: int) -> int:
        return capacity + max(1, math.ceil(FIRST_EXCESS * capacity))


@dataclass(frozen=True)
class _Cliff:
    """Two measured sizes, and the seconds per unit at the larger one."""

    small: int
    large: int
    pace: float
