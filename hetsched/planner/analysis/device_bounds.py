"""Lower bounds of one device's time as a function of its share."""

from __future__ import annotations

import math

from hetsched.memory import MemoryDemand
from hetsched.models import DeviceModel, SpeedFunction
from hetsched.planner.total_curves import RefinedCurve, TotalCurve
from hetsched.plans.bounds.bound_terms import convex_costs
from hetsched.plans.bounds.lower_bound import bound_of
from hetsched.plans.bounds.sampled_costs import MAX_EXACT_SIZE, sampled_costs
from hetsched.plans.device_plan import Overlap
from hetsched.plans.memory_fit import largest_sub_distribution
from hetsched.plans.share_estimate import ShareEstimate

EXTRAPOLATIONS = 2
"""Each makes a first guess at the units of a time about as much better as units outweigh gaps."""


class CoreBound:
    """A device without a link: the model's time, times `correction`."""

    def __init__(self, curve: SpeedFunction, correction: float = 1.0) -> None:
        self._curve = curve
        self._correction = correction

    def total(self) -> TotalCurve:
        """Return the bound as an argument of `split_load`."""
        return TotalCurve(self._curve)

    def seconds(self, share: int) -> float:
        """Return the bound for `share` units; 0 for a share of 0."""
        return self._correction * float(self._curve.time(share)) if share else 0.0

    def units_below(self, seconds: float, guess: int, precision: int = 1) -> int:
        """Return the most units that take less than `seconds`; fast if near `guess`.

        Less than `precision` units above that.
        """
        low = high = self._nearer(guess, seconds) if precision > 1 else guess
        step = precision
        while low > 0 and self.seconds(low) >= seconds:
            low, high, step = max(low - step, 0), low, 2 * step
        if low == high:
            high = low + step
            while self.seconds(high) < seconds:
                low, high, step = high, high + step, 2 * step
        while high - low > precision:
            middle = (low + high) // 2
            if self.seconds(middle) < seconds:
                low = middle
            else:
                high = middle
        return high - 1

    def _nearer(self, guess: int, seconds: float) -> int:
        """Return units that take about `seconds`, as times are nearly in proportion to units."""
        for _ in range(EXTRAPOLATIONS):
            taken = self.seconds(guess)
            if 0 < taken < math.inf:
                guess = int(guess * seconds / taken)
        return guess


class LinkedBound(CoreBound):
    """A device with a link: the lower bound of any plan, computed once per share."""

    def __init__(
        self,
        load: int,
        model: DeviceModel,
        memory: MemoryDemand,
        overlap: Overlap,
        correction: float = 1.0,
    ) -> None:
        self._load = load
        self._correction = correction
        costs = sampled_costs(model, memory.max_chunk(load))
        self._costs = convex_costs(costs) if costs.largest > MAX_EXACT_SIZE else costs
        self._max_resident_units = largest_sub_distribution(load, memory)
        self._overlap = overlap
        self._estimate = ShareEstimate(model, memory, overlap, load)
        self._seconds = {0: 0.0}

    def total(self) -> TotalCurve:
        return RefinedCurve(self._estimate, self.seconds)

    def seconds(self, share: int) -> float:
        if share > self._load:
            return math.inf
        if share not in self._seconds:
            costs = self._costs.up_to(min(share, self._costs.largest))
            resident_units = min(share, self._max_resident_units)
            bound = bound_of(share, costs, resident_units, self._overlap)
            self._seconds[share] = self._correction * bound
        return self._seconds[share]
