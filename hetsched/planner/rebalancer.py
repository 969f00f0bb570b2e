"""One kind of job, run again and again: its Balancer, and the plan that goes with each split.

The Balancer decides what the shares are and when they change; the planner is its `split`, and
makes chunks and variants of shares that stay.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hetsched.errors import UsageError
from hetsched.models import SpeedFunction
from hetsched.partition import Balancer, Distribution
from hetsched.planner.job_planner import Candidate, JobPlan
from hetsched.planner.teams import plan_best, plan_held

REUSES = 8
"""Runs that follow a plan which proved good, until it is looked at again: planning takes a
millisecond, and what has been learnt meanwhile should count some time. Arbitrary."""
GOOD = 0.10
"""Relative error of prediction of a run whose plan is followed again unseen."""
TOLERANCE = 0.04
"""Of the Balancer. Giving units from the slower to the faster of two devices gains half of the
spread at most, so with less a spread of 0.1 could stay. Medians of runs decide: noise is less."""

Look = Callable[[], Sequence[Candidate]]
"""What is known of the devices now."""


class Balance:
    """What comes of asking and telling; used in the planner's thread only.

    Parameters
    ----------
    load : int, units
    devices : sequence of str
        That may take part.
    """

    def __init__(self, load: int, devices: Sequence[str]) -> None:
        self._load = load
        self._devices = tuple(devices)
        self._runs = 0
        self._now: frozenset[str] = frozenset()
        self._begin()

    def _begin(self) -> None:
        self._known = [_Known() for _ in self._devices]
        self._balancer = Balancer(
            self._load,
            len(self._devices),
            tolerance=TOLERANCE,
            stop_when_seen=False,
            models=self._known,
            split=self._split,
        )
        self._plan: JobPlan | None = None
        self._found: JobPlan | None = None
        self._look: Look | None = None
        self._candidates: Sequence[Candidate] = ()
        self._uses = 0
        self._out = False

    def next(self, look: Look) -> JobPlan:
        """The plan of the next run. Raises what `look` and `plan_job` raise."""
        untold = self._out and self._uses >= REUSES  # a device died in each of these runs
        last = self._plan
        if untold or (last is not None and self._tries(last)):
            self._begin()  # there is no balance yet to hold on to
        elif self._uses >= REUSES or (last is not None and last.exploring):
            self._balancer.reconsider()
        self._look, self._found = look, None
        try:
            shares = self._balancer.ask().shares
            plan = self._with(shares)
        finally:
            self._look, self._found, self._candidates = None, None, ()
        self._plan, self._out = plan, True
        self._uses += 1
        self._runs += 1
        if not self._tries(plan):
            self._now = _working(plan)
        return plan

    def _tries(self, plan: JobPlan) -> bool:
        """Whether shares are only given to measure: to what isn't known, or to others than now.

        A variant that is tried again by devices that have shares anyway can keep these.
        """
        return plan.predicted_seconds is None or (plan.exploring and _working(plan) != self._now)

    def _with(self, shares: Sequence[int]) -> JobPlan:
        """A plan with these shares: the last one, unless the devices were looked at again."""
        if self._found is None:
            assert self._plan is not None, "the first split is found by planning"
            return self._plan
        self._uses = 0
        if _shares(self._found, self._devices) == tuple(shares):
            return self._found
        held = dict(zip(self._devices, shares, strict=True))
        return plan_held(self._load, self._candidates, held)

    def told(self, plan: JobPlan, seconds: Mapping[str, float], makespan: float) -> None:
        """What `plan` came to: seconds of each device that had a share, and of all together."""
        last = self._plan
        if not self._out or last is None or plan.assignments is not last.assignments:
            return
        if any(not seconds.get(one.device, 0.0) > 0 for one in plan.assignments):
            return
        self._out = False
        self._balancer.tell([seconds.get(device, 0.0) for device in self._devices])
        predicted = plan.predicted_seconds
        if predicted is None or abs(makespan / predicted - 1) > GOOD:
            self._balancer.reconsider()

    def moved(self, plan: JobPlan) -> None:
        """Devices ran dry in mid-run and took work of others: so far off, no split is kept.

        The next one is what the models say, which have learnt of this run.
        """
        last = self._plan
        if self._out and last is not None and plan.assignments is last.assignments:
            self._begin()

    def _split(self, models: Sequence[Any], load: int, limits: object) -> Distribution:
        """The planner, as the Balancer calls it: only from `next`."""
        assert self._look is not None, "nobody but `next` asks"
        self._candidates = self._look()
        self._found = found = plan_best(load, self._candidates, self._now, self._runs)
        for device, known in zip(self._devices, models, strict=True):
            known.curve = found.curves.get(device)
        seconds = found.predicted_seconds
        if seconds is None or self._tries(found) or self._unknown(found):
            seconds = math.nan  # it is to be tried, whatever it gains
        return Distribution(_shares(found, self._devices), seconds, math.nan)

    def _unknown(self, found: JobPlan) -> bool:
        """Whether the last plan has devices that `found` knows nothing of."""
        last = () if self._plan is None else self._plan.assignments
        return any(one.device not in found.curves for one in last)


class _Known:
    """A device's share and its seconds, by the plan that was made last."""

    curve: SpeedFunction | None = None

    def time(self, x: Any, /) -> Any:
        return self._curve().time(x)

    def speed(self, x: Any, /) -> Any:
        return self._curve().speed(x)

    def _curve(self) -> SpeedFunction:
        if self.curve is None:
            raise UsageError("a device that was never measured has no speed")
        return self.curve


def _working(plan: JobPlan) -> frozenset[str]:
    return frozenset(one.device for one in plan.assignments)


def _shares(plan: JobPlan, devices: Sequence[str]) -> tuple[int, ...]:
    given = {one.device: one.plan.share for one in plan.assignments}
    return tuple(given.get(device, 0) for device in devices)
