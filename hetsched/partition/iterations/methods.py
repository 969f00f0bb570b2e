"""The methods of an `IterationBalance`, and the Balancer behind each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from difflib import get_close_matches
from typing import Any

from hetsched.errors import UsageError
from hetsched.partition.balancing.balancer import Balancer
from hetsched.partition.balancing.imbalance_factor.node_model import NodeModel
from hetsched.partition.balancing.move_policy import FurtherRuns, MigrationCost
from hetsched.partition.distribution import Limits
from hetsched.partition.iterations.fixed_split import FixedSplit

IMBALANCE = "imbalance-factor"
BALANCE_METHODS = ("auto", "functional", "constant", IMBALANCE, "none")
"""`auto`: functional models that follow changes of speed. `functional`: Clarke's loop on
functional models. `constant`: shares in proportion to the last speeds, Clarke's baseline.
`imbalance-factor`: NEC's trades by wait times. `none`: shares don't change."""


def check_method(name: str) -> str:
    """Return `name`. Raises UsageError with the closest match if it is unknown."""
    if name not in BALANCE_METHODS:
        near = get_close_matches(str(name), BALANCE_METHODS, 1, 0.3)
        hint = f"did you mean {near[0]!r}?" if near else f"use one of {', '.join(BALANCE_METHODS)}"
        raise UsageError(f"balance: {name!r} is unknown; {hint}")
    return name


def new_balancer(
    method: str,
    load: int,
    tolerance: float,
    limits: Limits,
    *,
    models: Sequence[Any | None],
    nodes: Sequence[NodeModel],
    migration_cost: MigrationCost,
    further_runs: FurtherRuns,
    pairs: int,
) -> Balancer | FixedSplit:
    """Return the Balancer of a method.

    Parameters
    ----------
    load : int, units
    models : sequence of SpeedFunction or None
        Of each device, for `none`.
    nodes : sequence of NodeModel
        Of each device, for the imbalance factor.
    """
    if method == "none":
        return FixedSplit(load, models, limits)
    make: Callable[..., Balancer] = Balancer
    common = {"migration_cost": migration_cost, "further_runs": further_runs}
    devices = len(models)
    if method == "constant":
        return make(load, devices, "constant", tolerance, limits, False, **common)
    if method == IMBALANCE:
        return make(
            load, devices, IMBALANCE, tolerance, limits, models=nodes, pairs=pairs, **common
        )
    return make(load, devices, "optimal", tolerance, limits, **common)
