"""NEC's method for the Balancer: waits and trades (US 9,038,088)."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hetsched.partition.balancing.imbalance_factor.groups import (
    add_to_groups,
    parse_groups,
    repartition,
)
from hetsched.partition.balancing.imbalance_factor.node_model import NodeLearner, NodeModel
from hetsched.partition.balancing.imbalance_factor.trades import COMMON_WAIT, Node, total_and_waits
from hetsched.partition.balancing.method import Method
from hetsched.partition.balancing.partial_models import Learner
from hetsched.partition.balancing.phase import Reading
from hetsched.partition.balancing.run_history import Shares
from hetsched.partition.balancing.splitting import Split
from hetsched.partition.balancing.stopping import BALANCED, COMMUNICATION_BOUND
from hetsched.partition.distribution import Limits
from hetsched.partition.geometric import geometric


class ImbalanceMethod(Method):
    """Trades by wait times; with a `split`, a global partition of the same history instead."""

    max_unbalanced_runs = 2

    def __init__(
        self,
        devices: int,
        tolerance: float,
        split: Split | None,
        pairs: int,
        groups: Sequence[Any] | None,
        seed: int = 0,
    ) -> None:
        super().__init__(lambda: NodeLearner(NodeModel()), split or geometric)
        self._tolerance = tolerance
        self._is_trading = split is None
        self._pairs = pairs
        self._groups = parse_groups(groups, devices)
        self._has_groups = groups is not None
        self._random = random.Random(seed)

    def learner_of(self, model: Any) -> Learner:
        return NodeLearner(model) if isinstance(model, NodeModel) else Learner(model)

    def imbalance(self, shares: Shares, readings: Sequence[Reading], limits: Limits) -> float:
        total, waits = total_and_waits(readings, shares)
        free = [i for i, share in enumerate(shares) if share and not _is_full(share, limits[i])]
        shortest = min(waits[i] for i, share in enumerate(shares) if share)
        return (max(waits[i] for i in free) - shortest) / total if free else 0.0

    def balanced_reason(self, readings: Sequence[Reading]) -> str:
        total, waits = total_and_waits(readings, [1 if r.busy else 0 for r in readings])
        shortest = min(wait for wait, r in zip(waits, readings, strict=True) if r.busy)
        return COMMUNICATION_BOUND if shortest > COMMON_WAIT * total else BALANCED

    def trade(
        self, shares: Shares, readings: Sequence[Reading], models: Sequence[Any], limits: Limits
    ) -> tuple[Shares, float] | None:
        if not self._is_trading:
            return None
        total, waits = total_and_waits(readings, shares)
        nodes = {
            i: replace(
                _node(models[i], share, waits[i], limits[i], sum(shares)),
                tie_break=self._random.random(),
            )
            for i, share in enumerate(shares)
            if share
        }
        new_shares, gain = list(shares), 0.0
        for trade in repartition(nodes, total, self._tolerance, self._pairs, self._groups):
            new_shares[trade.giver] -= trade.units
            new_shares[trade.taker] += trade.units
            gain = max(gain, trade.gain)
        last = min(nodes, key=lambda i: waits[i])
        if tuple(new_shares) == shares and shares[last] == 1 and not self._has_groups:
            return None  # it has nothing to give as long as each device keeps a unit
        return tuple(new_shares), gain

    def add_device(self, device: int) -> None:
        if self._has_groups:
            self._groups = add_to_groups(self._groups, device)
        else:
            self._groups = parse_groups(None, device + 1)


def _is_full(share: int, limit: int | None) -> bool:
    return limit is not None and share >= limit


def _node(model: Any, share: int, wait: float, limit: int | None, load: int) -> Node:
    """Return a device as a Node. It keeps at least one unit: trades are decided by its times.

    A model without `phase_costs` has a single phase, proportional to its share.
    """
    spare, room = share - 1, (load if limit is None else limit) - share
    if hasattr(model, "phase_costs"):
        times, slopes = model.phase_costs(share)
    else:
        seconds = float(model.time(share))
        times, slopes = (seconds,), (seconds / share,)
    return Node(wait, times, slopes, spare, room)
