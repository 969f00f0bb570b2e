"""The methods of the Balancer: how each models devices, measures imbalance and splits the load."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from difflib import get_close_matches
from typing import Any

from hetsched.errors import UsageError
from hetsched.models import Akima, Constant, PiecewiseLinear, SpeedFunction
from hetsched.models.evidence.observations import ObservationWindows
from hetsched.partition.balancing.imbalance_factor.groups import parse_groups
from hetsched.partition.balancing.imbalance_factor.imbalance_method import ImbalanceMethod
from hetsched.partition.balancing.method import Method
from hetsched.partition.balancing.partial_models import PartialLearner
from hetsched.partition.balancing.splitting import Split
from hetsched.partition.constant import constant
from hetsched.partition.geometric import geometric
from hetsched.partition.optimal import optimal
from hetsched.partition.smooth import smooth

NewCurve = Callable[[int, float | None], Any]
"""(load, near) -> a curve without observations."""


def _nondecreasing(_: int, near: float | None) -> SpeedFunction:
    return PiecewiseLinear(near=near)


def _with_dips(_: int, near: float | None) -> SpeedFunction:
    return PiecewiseLinear(shape="dips", near=near)


def _akima(load: int, near: float | None) -> SpeedFunction:
    return Akima(ObservationWindows(near=near), load=load)


def _last_run(_: int, __: float | None) -> SpeedFunction:
    return Constant()


FUNCTIONAL: dict[str, tuple[NewCurve, Split]] = {
    "constant": (_last_run, constant),
    "geometric": (_nondecreasing, geometric),
    "smooth": (_akima, smooth),
    "optimal": (_with_dips, optimal),
    "dfpa": (_nondecreasing, geometric),
}
"""Method -> (curve, partitioner)."""
IMBALANCE = "imbalance-factor"


def make_method(
    name: str,
    load: int,
    devices: int,
    tolerance: float,
    split: Split | None,
    pairs: int,
    groups: Sequence[Any] | None,
    seed: int,
) -> Method:
    """Return the method called `name`. Raises UsageError with the closest match if unknown."""
    if groups is not None:
        parse_groups(groups, devices)
    if name == IMBALANCE:
        return ImbalanceMethod(devices, tolerance, split, pairs, groups, seed)
    if name not in FUNCTIONAL:
        names = [*FUNCTIONAL, IMBALANCE]
        near = get_close_matches(str(name), names, 1, 0.3)
        hint = f"did you mean {near[0]!r}?" if near else f"use one of {', '.join(names)}"
        raise UsageError(f"method: {name!r} is unknown; {hint}")
    new_curve, partitioner = FUNCTIONAL[name]
    return Method(lambda: PartialLearner(lambda near: new_curve(load, near)), split or partitioner)
