"""The shares of the next run: kept from the last run, or those of a proposal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hetsched.partition.balancing.method import Method
from hetsched.partition.balancing.move_policy import MovePolicy
from hetsched.partition.balancing.phase import Reading
from hetsched.partition.balancing.run_history import Shares
from hetsched.partition.balancing.splitting import is_measured
from hetsched.partition.balancing.stopping import (
    BALANCED_REASONS,
    NO_GAIN,
    is_within_one_unit,
    relative_spread,
)
from hetsched.partition.distribution import Distribution, Limits, predict


@dataclass(frozen=True)
class Situation:
    """Inputs of a decision.

    Attributes
    ----------
    models : sequence of SpeedFunction
    limits : sequence of int or None, units
    iterations : int
        Runs reported so far.
    lacks_measurements : bool
        A device that could have units hasn't been measured.
    """

    models: Sequence[Any]
    limits: Limits
    iterations: int
    lacks_measurements: bool = False


class Decision:
    """Choice between the shares of the last run and proposed ones.

    Attributes
    ----------
    next : Distribution or None
        Of the next run. None: these devices have no measurements; any proposal is accepted.
    is_open : bool
        Whether a proposal is needed despite a `next`.
    balanced : bool
        Whether `next` was measured and is balanced.
    reason : str
        Why the search has ended; empty while it continues.
    """

    def __init__(self, method: Method, tolerance: float, policy: MovePolicy) -> None:
        self._method = method
        self._tolerance = tolerance
        self._policy = policy
        self._forced = False
        self.reset(0)

    def reset(self, run: int) -> None:
        """Forget everything before `run`: the set of devices has changed."""
        self._policy.reset(run)
        self._last_run: tuple[Shares, Sequence[Reading]] | None = None
        self._unbalanced_runs = 0
        self._is_measuring = False
        self.next: Distribution | None = None
        self.is_open = False
        self.balanced = False
        self.reason = ""

    def record(self, shares: Shares, readings: Sequence[Reading], now: Situation) -> None:
        """Record a run. After a balanced run there is nothing to decide.

        But all devices are measured before any split counts as balanced.
        """
        self._last_run = shares, readings
        if any(getattr(model, "change", None) for model in now.models):
            self._policy.forget_times(now.iterations)
        self._policy.history.add(shares, [reading.busy for reading in readings])
        is_tolerated = self._method.imbalance(shares, readings, now.limits) <= self._tolerance
        was_measuring, self._is_measuring = self._is_measuring, now.lacks_measurements
        if was_measuring or now.lacks_measurements:
            self.is_open = True
        elif is_tolerated and not self._policy.excludes_useful_devices(shares):
            self._unbalanced_runs = 0
            self._stay(shares, self._method.balanced_reason(readings), now.limits)
            self.is_open = self._forced
        else:
            self._unbalanced_runs += 1
            self.is_open = (
                not self.balanced or self._unbalanced_runs >= self._method.max_unbalanced_runs
            )

    def reconsider(self, is_running: bool) -> None:
        """Decide again even if the last run was balanced, after the current run if one is out."""
        self._forced = True
        self.is_open = not is_running and self._last_run is not None

    def trade(self, now: Situation) -> bool:
        """Apply the method's trades; return False if it has none and needs a proposal."""
        assert self._last_run is not None, "a run comes before each decision"
        shares, readings = self._last_run
        trade = self._method.trade(shares, readings, now.models, now.limits)
        if trade is None:
            return False
        new_shares, gain = trade
        reason = NO_GAIN if new_shares == shares else ""
        seconds = self._policy.history.makespan(shares)
        self._move_or_stay(predict(now.models, new_shares), seconds, gain, reason, now)
        return True

    def propose(self, distribution: Distribution, now: Situation) -> None:
        """Accept or reject `distribution` by its predicted gain."""
        if self.next is None:
            self.next = distribution
            return
        assert self._last_run is not None, "a run comes before each decision"
        shares, _ = self._last_run
        seconds = _predicted(shares, now.models) or self._policy.history.makespan(shares)
        gain = seconds - distribution.makespan
        reason = self._policy.reason_against(
            shares, distribution.shares, gain / seconds, now.models, now.iterations
        )
        self._move_or_stay(distribution, seconds, gain, reason, now)

    def _move_or_stay(
        self, distribution: Distribution, seconds: float, gain: float, reason: str, now: Situation
    ) -> None:
        """Move to `distribution`, or keep the present shares or the fastest measured ones.

        `seconds`: of the present shares; `gain`: seconds per run; `reason`: why not to move, empty
        if undecided.
        """
        assert self._last_run is not None, "a run comes before each decision"
        shares, _ = self._last_run
        self.is_open = self._forced = False
        reason = reason or self._policy.reason_to_stop(
            shares, distribution.shares, gain, now.iterations
        )
        if not reason:
            self._policy.count_move()
            self.next, self.balanced, self.reason = distribution, False, ""
            return
        if not self.reason:
            shares = self._policy.shares_to_keep(shares, seconds, now.iterations)
        self._stay(shares, reason, now.limits)

    def _stay(self, shares: Shares, reason: str, limits: Limits) -> None:
        self._policy.count_stay(reason)
        seconds = self._policy.history.seconds(shares)
        spread = relative_spread(shares, seconds, limits)
        makespan = self._policy.history.makespan(shares)
        self.next = Distribution(shares, makespan, spread, reason)
        self.balanced = (
            reason in BALANCED_REASONS
            or spread <= self._tolerance
            or is_within_one_unit(shares, seconds, spread)
        )
        self.reason = reason


def _predicted(shares: Shares, models: Sequence[Any]) -> float | None:
    """Return the predicted seconds of `shares`; None if a model is unmeasured.

    Better than the measured time, where noise biases the maximum over devices upwards.
    """
    used = [model for model, share in zip(models, shares, strict=True) if share]
    return predict(models, shares).makespan if all(map(is_measured, used)) else None
