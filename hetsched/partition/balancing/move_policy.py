"""The policy on whether to move from the present shares to a proposed distribution."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from hetsched.partition.balancing.arguments import non_negative
from hetsched.partition.balancing.run_history import RunHistory, Shares
from hetsched.partition.balancing.stopping import (
    BUDGET,
    MIN_GUESSED_GAIN,
    NO_GAIN,
    NOT_WORTH_MOVING,
    SEEN,
    DeferredGain,
    is_guess,
)

MigrationCost = Callable[[Shares, Shares], float]
"""(old shares, new shares) -> seconds that moving the data takes."""

FurtherRuns = Callable[[int], float]
"""Runs so far -> runs that are expected to follow."""

MAX_SEARCH_RUNS = 50
MAX_SEARCH_RUNS_PER_DEVICE = 20
"""Maximum runs of one search, a constant and a term per device; then the best is kept."""


class MovePolicy:
    """Rules on gains, noise, measured distributions, the search budget and migration cost.

    Parameters
    ----------
    tolerance : float
    settled_runs : int
        As in `DeferredGain`.
    stop_when_seen : bool
        Whether returning to a measured distribution ends the search.
    migration_cost, further_runs : callable or None
        As in `Balancer`.
    """

    def __init__(
        self,
        tolerance: float,
        settled_runs: int,
        stop_when_seen: bool,
        migration_cost: MigrationCost | None,
        further_runs: FurtherRuns | None = None,
    ) -> None:
        self._tolerance = tolerance
        self._stop_when_seen = stop_when_seen
        self._migration_cost = migration_cost
        self._further_runs = further_runs or float
        self._deferred_gain = DeferredGain(tolerance, settled_runs)
        self._search_runs = 0
        self._first_run = 0
        self.history = RunHistory()

    def reset(self, run: int) -> None:
        """Forget everything before `run`: the set of devices has changed."""
        self._deferred_gain.clear()
        self.forget_times(run)

    def forget_times(self, run: int) -> None:
        """Forget the times measured before `run`: a device has changed its speed."""
        self.history.clear()
        self._search_runs = 0
        self._first_run = run

    def count_move(self) -> None:
        """Record a move to another distribution."""
        self._search_runs += 1
        self._deferred_gain.clear()

    def count_stay(self, reason: str) -> None:
        """Record the end of the search, for `reason`."""
        if reason != BUDGET:
            self._search_runs = 0

    def excludes_useful_devices(self, shares: Shares) -> bool:
        """Return whether `shares` use only some devices though others finished sooner."""
        if not self._stop_when_seen or all(shares):
            return False
        fastest = self.history.makespan(self.history.fastest())
        return self.history.makespan(shares) > (1 + self._tolerance) * fastest

    def reason_against(
        self, present: Shares, proposed: Shares, gain: float, models: Sequence[Any], run: int
    ) -> str:
        """Return why the relative `gain` is too small to try `proposed`; empty: try it."""
        if math.isnan(gain):
            return NO_GAIN if proposed == present else ""
        if proposed == present or gain <= MIN_GUESSED_GAIN * self._tolerance:
            return NO_GAIN
        if gain > self._tolerance or is_guess(models, proposed):
            return ""
        return NO_GAIN if self._deferred_gain.defer(gain, run - self._first_run) else ""

    def reason_to_stop(self, present: Shares, proposed: Shares, gain: float, runs: int) -> str:
        """Return why not to move to `proposed`, which gains `gain` seconds a run; empty: move."""
        if self._stop_when_seen and proposed in self.history:
            return SEEN
        if self._search_runs >= MAX_SEARCH_RUNS + MAX_SEARCH_RUNS_PER_DEVICE * len(present):
            return BUDGET
        # An unknown gain is no reason to stay: a device was never measured.
        if math.isnan(gain) or self._pays(present, proposed, gain, runs):
            return ""
        return NOT_WORTH_MOVING

    def shares_to_keep(self, present: Shares, seconds: float, runs: int) -> Shares:
        """Return the fastest measured distribution if moving back to it pays, else `present`."""
        if not self._stop_when_seen:
            return present
        fastest = self.history.fastest()
        gain = seconds - self.history.makespan(fastest)
        return fastest if self._pays(present, fastest, gain, runs) else present

    def _pays(self, old: Shares, new: Shares, gain: float, runs: int) -> bool:
        """Return whether `gain` seconds per run, over the further runs, exceed the cost."""
        if self._migration_cost is None or old == new:
            return True
        cost = non_negative("migration_cost", self._migration_cost(old, new), " s")
        return cost == 0 or gain * self._further_runs(runs) > cost
