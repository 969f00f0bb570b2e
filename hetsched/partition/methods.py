"""How each method of the Balancer models a device and splits the load; one entry a method."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from difflib import get_close_matches
from typing import Any

from hetsched.errors import UsageError
from hetsched.models import Akima, Constant, PiecewiseLinear, SpeedFunction
from hetsched.partition.constant import constant
from hetsched.partition.distribution import Distribution, Limits
from hetsched.partition.geometric import geometric
from hetsched.partition.optimal import optimal
from hetsched.partition.smooth import smooth

Split = Callable[[Sequence[Any], int, Sequence[int | None]], Distribution]
"""(models, load, limits) -> Distribution."""

FUNCTIONAL: dict[str, tuple[Callable[[int], SpeedFunction], Split]] = {
    "constant": (lambda _: Constant(), constant),
    "geometric": (lambda _: PiecewiseLinear(), geometric),
    "smooth": (lambda load: Akima(load=load), smooth),
    "optimal": (lambda _: PiecewiseLinear(), optimal),
    "dfpa": (lambda _: PiecewiseLinear(), geometric),
}
"""Method -> (a new model for a load, the partitioner)."""
IMBALANCE = "imbalance-factor"


def method_named(name: str) -> str:
    """`name`, if it is a method. Raises UsageError that names the nearest."""
    names = [*FUNCTIONAL, IMBALANCE]
    if name in names:
        return name
    near = get_close_matches(str(name), names, 1, 0.3)
    hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(names)}"
    raise UsageError(f"method: {name!r} is unknown; {hint}")


def even(load: int, limits: Limits) -> list[int]:
    """Equal shares within the limits; the first devices get what doesn't divide."""
    return list(constant([Constant(1.0)] * len(limits), load, limits).shares)


def partitioned(models: Sequence[Any], load: int, limits: Limits, split: Split) -> Distribution:
    """`split` over the devices of which something is known; the others get an equal share."""
    known = [i for i, model in enumerate(models) if knows(model)]
    shares = even(load, limits)
    if not known:
        return Distribution(tuple(shares), float("nan"), float("nan"), "nothing is known yet")
    part = sum(shares[i] for i in known)
    found = split([models[i] for i in known], part, [limits[i] for i in known])
    _check(found, part, [limits[i] for i in known])
    if len(known) == len(models):
        return found
    for i, share in zip(known, found.shares, strict=True):
        shares[i] = share
    return Distribution(tuple(shares), float("nan"), float("nan"), "devices to be measured first")


def knows(model: SpeedFunction) -> bool:
    """Whether `model` can tell a time."""
    try:
        model.time(1.0)
    except UsageError:
        return False
    return True


def _check(found: Distribution, load: int, limits: Limits) -> None:
    """Raises UsageError unless the shares of `found` sum to `load` within the limits."""
    shares = found.shares
    if len(shares) != len(limits) or sum(shares) != load:
        raise UsageError(
            f"split: shares {shares} must sum to {load} units on {len(limits)} devices"
        )
    for share, limit in zip(shares, limits, strict=True):
        if share < 0 or (limit is not None and share > limit):
            raise UsageError(f"split: a share of {share} units, the device takes 0 to {limit}")
