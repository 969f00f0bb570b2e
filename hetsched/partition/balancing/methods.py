"""The methods of the Balancer: how each models a device, tells a balance and finds a split."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from typing import Any

from hetsched.errors import UsageError
from hetsched.models import Akima, Constant, PiecewiseLinear, SpeedFunction
from hetsched.models.evidence.observations import Windows
from hetsched.partition.balancing.groups import grouped, joined, repartition
from hetsched.partition.balancing.imbalance import COMMON_WAIT, Node, total_and_waits
from hetsched.partition.balancing.node_model import NodeLearner, NodeModel
from hetsched.partition.balancing.partial_models import Learner, Partial
from hetsched.partition.balancing.phase import Reading
from hetsched.partition.balancing.stopping import BALANCED, COMMUNICATION, Shares, spread
from hetsched.partition.constant import constant
from hetsched.partition.distribution import Distribution, Limits
from hetsched.partition.geometric import geometric
from hetsched.partition.optimal import optimal
from hetsched.partition.smooth import smooth

Split = Callable[[Sequence[Any], int, Sequence[int | None]], Distribution]
"""(models, load, limits) -> Distribution."""

NewCurve = Callable[[int, float | None], Any]
"""(load, near) -> a curve that knows nothing yet."""


def _rising(_: int, near: float | None) -> SpeedFunction:
    return PiecewiseLinear(near=near)


def _with_dips(_: int, near: float | None) -> SpeedFunction:
    return PiecewiseLinear(shape="dips", near=near)


def _akima(load: int, near: float | None) -> SpeedFunction:
    return Akima(Windows(near=near), load=load)


def _last_run(_: int, __: float | None) -> SpeedFunction:
    return Constant()


FUNCTIONAL: dict[str, tuple[NewCurve, Split]] = {
    "constant": (_last_run, constant),
    "geometric": (_rising, geometric),
    "smooth": (_akima, smooth),
    "optimal": (_with_dips, optimal),
    "dfpa": (_rising, geometric),
}
"""Method -> (curve, partitioner)."""
IMBALANCE = "imbalance-factor"


class Method:
    """Speed functions and a partitioner: Clarke, DFPA."""

    patience = 1
    """Runs in a row out of balance until a balance that was found is given up."""

    def __init__(self, new_model: Callable[[], Learner], split: Split) -> None:
        self.new_model = new_model
        self.split = split

    def imbalance(self, shares: Shares, told: Sequence[Reading], limits: Limits) -> float:
        """What the tolerance is for."""
        return spread(shares, [one.busy for one in told], limits)

    def verdict(self, told: Sequence[Reading]) -> str:
        """The reason to stay when the imbalance is tolerated."""
        return BALANCED

    def step(
        self, shares: Shares, told: Sequence[Reading], models: Sequence[Any], limits: Limits
    ) -> tuple[Shares, float] | None:
        """Another split and the seconds that it gains; None: ask the partitioner."""
        return None

    def joined(self, device: int) -> None:
        """`device` takes part from now on."""


class ImbalanceMethod(Method):
    """Waits and trades: NEC. With a `split` of its own, a global partition of the history."""

    patience = 2

    def __init__(
        self,
        devices: int,
        tolerance: float,
        split: Split | None,
        pairs: int,
        groups: Sequence[Any] | None,
    ) -> None:
        super().__init__(lambda: NodeLearner(NodeModel()), split or geometric)
        self._tolerance = tolerance
        self._trading = split is None
        self._pairs = pairs
        self._groups = grouped(groups, devices)
        self._split_up = groups is not None

    def imbalance(self, shares: Shares, told: Sequence[Reading], limits: Limits) -> float:
        total, waits = total_and_waits(told, shares)
        free = [i for i, share in enumerate(shares) if share and not _full(share, limits[i])]
        least = min(waits[i] for i, share in enumerate(shares) if share)
        return (max(waits[i] for i in free) - least) / total if free else 0.0

    def verdict(self, told: Sequence[Reading]) -> str:
        total, waits = total_and_waits(told, [1 if one.busy else 0 for one in told])
        least = min(wait for wait, one in zip(waits, told, strict=True) if one.busy)
        return COMMUNICATION if least > COMMON_WAIT * total else BALANCED

    def step(
        self, shares: Shares, told: Sequence[Reading], models: Sequence[Any], limits: Limits
    ) -> tuple[Shares, float] | None:
        if not self._trading:
            return None
        total, waits = total_and_waits(told, shares)
        nodes = {
            i: _node(models[i], share, waits[i], limits[i], sum(shares))
            for i, share in enumerate(shares)
            if share
        }
        new, gain = list(shares), 0.0
        for trade in repartition(nodes, total, self._tolerance, self._pairs, self._groups):
            new[trade.giver] -= trade.units
            new[trade.taker] += trade.units
            gain = max(gain, trade.gain)
        return tuple(new), gain

    def joined(self, device: int) -> None:
        if self._split_up:
            self._groups = joined(self._groups, device)
        else:
            self._groups = grouped(None, device + 1)


def _full(share: int, limit: int | None) -> bool:
    return limit is not None and share >= limit


def _node(model: Any, share: int, wait: float, limit: int | None, load: int) -> Node:
    """A device keeps one unit at least, as there is no history of none."""
    spare, room = share - 1, (load if limit is None else limit) - share
    if isinstance(model, NodeModel):
        times = model.compute(share), model.transfer(share)
        return Node(wait, times, model.slopes, spare, room)
    seconds = float(model.time(share))
    return Node(wait, (seconds,), (seconds / share,), spare, room)


def method(
    name: str,
    load: int,
    devices: int,
    tolerance: float,
    split: Split | None,
    pairs: int,
    groups: Sequence[Any] | None,
) -> Method:
    """The method called `name`. Raises UsageError that names the nearest if there is none."""
    grouped(groups, devices)
    if name == IMBALANCE:
        return ImbalanceMethod(devices, tolerance, split, pairs, groups)
    if name not in FUNCTIONAL:
        names = [*FUNCTIONAL, IMBALANCE]
        near = get_close_matches(str(name), names, 1, 0.3)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(names)}"
        raise UsageError(f"method: {name!r} is unknown; {hint}")
    new_curve, own = FUNCTIONAL[name]
    return Method(lambda: Partial(lambda near: new_curve(load, near)), split or own)


def partitioned(models: Sequence[Any], load: int, limits: Limits, split: Split) -> Distribution:
    """`split` over the devices of which something is known; the others get an equal share.

    If there are fewer units than devices, the unknown ones come first.
    """
    known = [i for i, model in enumerate(models) if knows(model)]
    if len(known) == len(models):
        return checked_split(split, models, load, limits)
    order = [i for i in range(len(models)) if i not in known] + known
    equal = constant([Constant(1.0)] * len(order), load, [limits[i] for i in order]).shares
    shares = [share for _, share in sorted(zip(order, equal, strict=True))]
    if known:
        part, most = sum(shares[i] for i in known), [limits[i] for i in known]
        found = checked_split(split, [models[i] for i in known], part, most)
        for i, share in zip(known, found.shares, strict=True):
            shares[i] = share
    return Distribution(tuple(shares), math.nan, math.nan, "devices to be measured first")


def check_models(models: Sequence[Any]) -> None:
    """Raises UsageError for what is no speed function at all."""
    for index, model in enumerate(models):
        if not all(callable(getattr(model, name, None)) for name in ("time", "speed")):
            raise UsageError(f"models: {model!r}, of device {index}, has no .time and .speed")


def knows(model: SpeedFunction) -> bool:
    """Whether `model` can tell a time."""
    try:
        model.time(1.0)
    except UsageError:
        return False
    return True


def checked_split(split: Split, models: Sequence[Any], load: int, limits: Limits) -> Distribution:
    """What `split` says. Raises UsageError unless its shares sum to `load` within the limits."""
    found = split(models, load, limits)
    if not isinstance(found, Distribution):
        raise UsageError(f"split: returned {found!r}, it must be a Distribution")
    shares = found.shares
    if len(shares) != len(limits) or sum(shares) != load:
        raise UsageError(
            f"split: shares {shares} must sum to {load} units on {len(limits)} devices"
        )
    for share, limit in zip(shares, limits, strict=True):
        if share < 0 or (limit is not None and share > limit):
            raise UsageError(f"split: a share of {share} units, the device takes 0 to {limit}")
    return found
