"""The methods of an `IterationBalance`, and the Balancer behind each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from typing import Any

from hetsched.errors import UsageError
from hetsched.partition.balancing.balancer import Balancer
from hetsched.partition.balancing.imbalance_factor.node_model import NodeModel
from hetsched.partition.balancing.move_policy import FurtherRuns, MigrationCost
from hetsched.partition.distribution import Limits
from hetsched.partition.iterations.adaptive.balancer import AdaptiveBalancer
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


@dataclass(frozen=True)
class KnownDevices:
    """What is known of the devices before the first iteration.

    Attributes
    ----------
    limits : sequence of int or None, units
        The maximum for each device.
    capacities : sequence of int or None, units
        What fits in each device's memory, for `auto`.
    models : sequence of SpeedFunction or None
        For the fixed split of `none`.
    kinds : sequence of str
        Equal for devices that presumably have the same speed, for `auto`.
    nodes : sequence of NodeModel
        For the imbalance factor.
    """

    limits: Limits
    capacities: Limits
    kinds: Sequence[str]
    models: Sequence[Any | None]
    nodes: Sequence[NodeModel]


def new_balancer(
    method: str,
    load: int,
    tolerance: float,
    known: KnownDevices,
    *,
    migration_cost: MigrationCost,
    further_runs: FurtherRuns,
    pairs: int,
) -> Balancer | AdaptiveBalancer | FixedSplit:
    """Return the Balancer of a method, for `load` units."""
    limits, devices = known.limits, len(known.models)
    if method == "none":
        return FixedSplit(load, known.models, limits)
    if method == "auto":
        return AdaptiveBalancer(
            load,
            devices,
            tolerance,
            limits,
            migration_cost,
            further_runs,
            known.capacities,
            known.kinds,
        )
    make = partial(
        Balancer, load, devices, migration_cost=migration_cost, further_runs=further_runs
    )
    if method == "constant":
        return make("constant", tolerance, limits, False)
    if method == IMBALANCE:
        return make(IMBALANCE, tolerance, limits, models=known.nodes, pairs=pairs)
    return make("geometric", tolerance, limits)
