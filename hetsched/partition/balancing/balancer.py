"""The balancing loop, turned inside out: ask for a split, run it, tell what it took.

The loops of Clarke (sections 3, 4), DFPA, NEC and the engine are this object; it runs nothing.
"""

from __future__ import annotations

import math
import numbers
import operator
from collections.abc import Callable, Sequence
from typing import Any

from hetsched.errors import DataError, UsageError
from hetsched.partition.balancing.methods import (
    Split,
    check_models,
    checked_split,
    knows,
    partitioned,
)
from hetsched.partition.balancing.methods import method as make_method
from hetsched.partition.balancing.partial_models import Learner
from hetsched.partition.balancing.phase import Reading, Told, readings
from hetsched.partition.balancing.stopping import (
    BUDGET,
    GUESSED,
    NO_GAIN,
    NOT_WORTH,
    SEEN,
    SETTLED,
    TOLERATED,
    Record,
    Regret,
    Shares,
    a_unit_apart,
    guessed,
    spread,
)
from hetsched.partition.distribution import Distribution, Limits, checked, priced

MigrationCost = Callable[[Shares, Shares], float]
"""(old shares, new shares) -> seconds that moving the data takes."""

SEARCH = 50
SEARCH_PER_DEVICE = 20
"""Runs of one search for a balance, in all and more for each device, until the best is kept."""


class Balancer:
    """Finds, run by run, the shares with which all devices finish together.

    >>> balancer = Balancer(300, 2)
    >>> while not balancer.reason:
    ...     first, second = balancer.ask().shares
    ...     balancer.tell([first / 1.0, second / 2.0])
    >>> balancer.ask().shares, balancer.reason
    ((100, 200), 'balanced')

    Parameters
    ----------
    load : int, units
    devices : int
    method : str
        "constant": shares in proportion to the last run's speeds (Clarke 3). "geometric",
        "smooth", "optimal": that partitioner on speed functions of size (Clarke 5 and 6).
        "dfpa": as geometric, over a benchmark kernel: there are no data yet that would have to
        move. "imbalance-factor": whoever waits least gives units to whoever waits most (NEC).
    tolerance : float
        epsilon: the relative spread of times (of waits: the imbalance factor), and the relative
        gain, that is too little to act.
    limits : sequence of int or None, units, optional
        The most that each device takes, in the first run too.
    stop_when_seen : bool
        Whether to remember what was measured: the loop then ends when it comes back to a split,
        and keeps the best. Without, it only looks at models and the last run.
    models : sequence of SpeedFunction, optional
        To start with; those with `observe` learn from what is told.
    split : callable (models, load, limits) -> Distribution, optional
        Instead of the method's partitioner; instead of trades, for the imbalance factor.
    migration_cost : callable (old shares, new shares) -> seconds, optional
        A split is left only if the gain, in as many further runs as there have been, is more: so
        waiting and moving together cost at most twice the best choice in hindsight.
    pairs : int
        Trades in one run (imbalance factor).
    groups : sequence of sequences of int, or of labels, optional
        Devices that trade among each other first, then group with group; overlapping ones are
        neighbourhoods, without anything above them (imbalance factor).

    Raises
    ------
    UsageError
        Malformed. DataError: the limits leave no room for the load.
    """

    def __init__(  # noqa: PLR0913 - the interface, all that a user may say
        self,
        load: int,
        devices: int,
        method: str = "geometric",
        tolerance: float = 0.1,
        limits: Limits | None = None,
        stop_when_seen: bool = True,
        *,
        models: Sequence[Any] | None = None,
        split: Split | None = None,
        migration_cost: MigrationCost | None = None,
        pairs: int = 1,
        groups: Sequence[Any] | None = None,
    ) -> None:
        self._load = _positive("load", load)
        devices = _positive("devices", devices)
        self._tolerance = _not_negative("tolerance", tolerance, "")
        for name, call in (("split", split), ("migration_cost", migration_cost)):
            if call is not None and not callable(call):
                raise UsageError(f"{name}: {call!r} must be callable")
        pairs = _positive("pairs", pairs)
        self._method = make_method(
            method, self._load, devices, self._tolerance, split, pairs, groups
        )
        self._limits = [None] * devices if limits is None else _each("limits", limits, devices)
        self._own = models is None
        self._learners = (
            [self._method.new_model() for _ in range(devices)]
            if models is None
            else [Learner(model) for model in _each("models", models, devices)]
        )
        self._foreign = split is not None
        self._cost = migration_cost if method != "dfpa" else None
        self._stop_when_seen = stop_when_seen
        self._record = Record()
        self._lost: set[int] = set()
        self._shares: Shares | None = None
        self._out = False
        self._newcomers = 0
        self._search = 0
        self._late = 0
        self._since = 0
        self._regret = Regret(self._tolerance, 1 if self._own else SETTLED)
        self._balanced = False
        checked(self.models, self._load, self._limits)
        check_models(self.models)
        self._next: Distribution | None = None
        self._reason = ""
        self._told: tuple[Shares, list[Reading]] | None = None
        self._pending = False
        self._anyway = False
        self.iterations = 0
        """Runs told of."""

    @property
    def models(self) -> tuple[Any, ...]:
        """One a device, a lost one too."""
        return tuple(learner.curve for learner in self._learners)

    @property
    def balanced(self) -> bool:
        """Whether the split that `ask` returns was measured and is balanced.

        That is, the devices' times differ by no more than the tolerance, or than one unit takes
        the slowest device; those at their limit may be early.
        """
        self._settle()
        return self._balanced

    @property
    def reason(self) -> str:
        """Why no other split is tried; empty while one is."""
        self._settle()
        return self._reason

    def ask(self) -> Distribution:
        """The split of the next run; the same until it is told of.

        Returns
        -------
        Distribution
            `makespan` and `spread` as measured, or else by the models; NaN as long as those know
            nothing.

        Raises
        ------
        DataError
            Devices were lost, and those that are left have no room for the load.
        UsageError
            A model, `split` or `migration_cost` gave what can't be.
        """
        self._settle()
        if self._next is None:
            self._next = self._partition()
        self._shares = self._next.shares
        self._out = True
        return self._next

    def tell(self, times: Sequence[Told]) -> None:
        """Learn what the split that was asked for took.

        Parameters
        ----------
        times : sequence of float, Mapping[Phase, float] or None, seconds
            One a device. None: it is lost, and has no share from now on. Of a device without a
            share nothing is learnt.

        Raises
        ------
        UsageError
            Nothing was asked for; not one entry a device; an entry is no finite time, or 0 for a
            device with a share. Nothing was learnt then.
        """
        if not self._out or self._shares is None:
            raise UsageError("tell: no split is out; call ask() first")
        shares = self._shares
        told = readings(times, shares, self._newcomers)
        self._out, newcomers, self._newcomers = False, self._newcomers, 0
        self.iterations += 1
        lost = {i for i, one in enumerate(told) if one is None} - self._lost
        for i, one in enumerate(told):
            if one is not None and shares[i]:
                self._learners[i].learn(shares[i], one)
        if lost or newcomers:
            self._lost |= lost
            self._begin_anew()
        else:
            self._told = shares, [Reading(0.0) if one is None else one for one in told]
            self._note(*self._told)

    def join(self) -> int:
        """Another device, unknown and without a limit, takes part from the next run on.

        Returns
        -------
        int
            Its index: the entries of `ask().shares` and of what is told are one more from now on;
            the run that is out, if any, may be told of without.
        """
        self._learners.append(self._method.new_model())
        self._method.joined(len(self._learners) - 1)
        self._limits.append(None)
        if self._shares is not None and self._out:
            self._shares = (*self._shares, 0)
            self._newcomers += 1
        self._begin_anew()
        return len(self._learners) - 1

    def reconsider(self) -> None:
        """Look at the models again before the next run, though the last one was balanced.

        For models that learn from elsewhere, too.
        """
        self._anyway = True
        self._pending = not self._out and self._told is not None

    def _begin_anew(self) -> None:
        """Other devices: what was measured of splits says nothing any more."""
        self._record = Record()
        self._regret.clear()
        self._since = self.iterations
        self._next = None
        self._late = 0
        self._search = 0
        self._balanced = False
        self._reason = ""
        self._told = None
        self._pending = False

    def _partition(self) -> Distribution:
        """What the models make of it, over the devices that are there."""
        live = [i for i in range(len(self._learners)) if i not in self._lost]
        if not live:
            raise DataError(f"all {len(self._learners)} devices are lost")
        models = [self._learners[i].curve for i in live]
        limits = [self._limits[i] for i in live]
        checked(models, self._load, limits)
        if self._own or not self._foreign:
            found = partitioned(models, self._load, limits, self._method.split)
        else:
            # Who brings both knows what to do with devices that weren't measured yet.
            found = checked_split(self._method.split, models, self._load, limits)
        if not self._lost:
            return found
        shares = [0] * len(self._learners)
        for i, share in zip(live, found.shares, strict=True):
            shares[i] = share
        return Distribution(tuple(shares), found.makespan, found.spread, found.reason)

    def _note(self, shares: Shares, told: list[Reading]) -> None:
        """Remember a run. If it was balanced, nothing is left to be decided."""
        if any(getattr(model, "change", None) for model in self.models):
            self._record.clear()
            self._search, self._since = 0, self.iterations
        self._record.add(shares, [one.busy for one in told])
        balanced = self._method.imbalance(shares, told, self._limits) <= self._tolerance
        if balanced and not self._left_out(shares):
            self._late = 0
            self._stay(shares, self._method.verdict(told))
            self._pending = self._anyway
        else:
            self._late += 1
            self._pending = not self._balanced or self._late >= self._method.patience

    def _settle(self) -> None:
        """Decide what to do next, now that somebody wants to know: a split may take its time."""
        if self._pending and self._told is not None:
            self._pending = self._anyway = False
            self._decide(*self._told)

    def _decide(self, shares: Shares, told: list[Reading]) -> None:
        """Stay with `shares`, go on to another split, or go back to the best."""
        now = self._record.makespan(shares)
        step = self._method.step(shares, told, self.models, self._limits)
        if step is None:
            found = self._partition()
            now = self._by_models(shares) or now
            gain = now - found.makespan
            reason = self._no_gain(shares, found.shares, gain / now)
        else:
            found, gain = priced(self.models, step[0]), step[1]
            reason = NO_GAIN if found.shares == shares else ""
        reason = reason or self._why_stop(shares, found.shares, gain)
        if not reason:
            self._search += 1
            self._regret.clear()
            self._next, self._balanced, self._reason = found, False, ""
            return
        best = self._record.best() if self._stop_when_seen and not self._reason else shares
        if best != shares and self._worth(shares, best, now - self._record.makespan(best)):
            shares = best
        self._stay(shares, reason)

    def _by_models(self, shares: Shares) -> float | None:
        """Seconds of `shares` if the models know: noise makes the longest of several too long."""
        models = self.models
        if all(knows(model) for model, share in zip(models, shares, strict=True) if share):
            return priced(models, shares).makespan
        return None

    def _left_out(self, shares: Shares) -> bool:
        """Whether fewer devices finish together than have finished sooner."""
        if not self._stop_when_seen or all(shares):
            return False
        best = self._record.makespan(self._record.best())
        return self._record.makespan(shares) > (1 + self._tolerance) * best

    def _no_gain(self, shares: Shares, found: Shares, gain: float) -> str:
        """NO_GAIN if `found` promises too little, by the models; empty: it may be tried."""
        if math.isnan(gain):
            return NO_GAIN if found == shares else ""
        if found == shares or gain <= GUESSED * self._tolerance:
            return NO_GAIN
        if gain > self._tolerance or guessed(self.models, found):
            return ""
        return NO_GAIN if self._regret.passes(gain, self.iterations - self._since) else ""

    def _why_stop(self, shares: Shares, found: Shares, gain: float) -> str:
        """Why not to go on to `found` although it gains `gain` seconds a run; empty: go on."""
        if self._stop_when_seen and found in self._record:
            return SEEN
        if self._search >= SEARCH + SEARCH_PER_DEVICE * len(shares):
            return BUDGET
        # A gain that isn't known is no reason to stay: a device was never measured.
        return "" if math.isnan(gain) or self._worth(shares, found, gain) else NOT_WORTH

    def _worth(self, old: Shares, new: Shares, gain: float) -> bool:
        """Whether `gain` seconds a run are worth the move."""
        if self._cost is None:
            return True
        cost = _not_negative("migration_cost", self._cost(old, new), " s")
        return cost == 0 or gain * self.iterations > cost

    def _stay(self, shares: Shares, reason: str) -> None:
        self._search = 0 if reason != BUDGET else self._search
        seconds = self._record.seconds(shares)
        apart = spread(shares, seconds, self._limits)
        self._next = Distribution(shares, self._record.makespan(shares), apart, reason)
        self._balanced = (
            reason in TOLERATED or apart <= self._tolerance or a_unit_apart(shares, seconds, apart)
        )
        self._reason = reason


def _positive(name: str, value: int) -> int:
    try:
        count = operator.index(value)
    except TypeError:
        raise UsageError(f"{name}: {value!r} must be a whole number") from None
    if count < 1 or isinstance(value, bool):
        raise UsageError(f"{name}: {value}, it must be a number of 1 or more")
    return count


def _not_negative(name: str, value: float, unit: str) -> float:
    if not isinstance(value, numbers.Real) or not 0 <= float(value) < math.inf:
        raise UsageError(f"{name}: {value!r}{unit}, it must be finite and not negative")
    return float(value)


def _each(name: str, values: Sequence[Any], devices: int) -> list[Any]:
    if not hasattr(values, "__len__") or len(values) != devices:
        raise UsageError(f"{name}: {values!r}, it must be a sequence of {devices}, one a device")
    return list(values)
