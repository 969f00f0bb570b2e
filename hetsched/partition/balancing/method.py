"""What a Balancer asks of its method."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hetsched.partition.balancing.partial_models import Learner
from hetsched.partition.balancing.phase import Reading
from hetsched.partition.balancing.run_history import Shares
from hetsched.partition.balancing.splitting import Split
from hetsched.partition.balancing.stopping import BALANCED, relative_spread
from hetsched.partition.distribution import Limits


class Method:
    """Speed functions and a partitioner: Clarke, DFPA."""

    max_unbalanced_runs = 1
    """Consecutive unbalanced runs after which a balance is given up."""

    def __init__(self, new_model: Callable[[], Learner], split: Split) -> None:
        self.new_model = new_model
        self.split = split

    def imbalance(self, shares: Shares, readings: Sequence[Reading], limits: Limits) -> float:
        """The number to compare with the tolerance."""
        return relative_spread(shares, [reading.busy for reading in readings], limits)

    def balanced_reason(self, readings: Sequence[Reading]) -> str:
        """The reason to stay when the imbalance is within the tolerance."""
        return BALANCED

    def trade(
        self, shares: Shares, readings: Sequence[Reading], models: Sequence[Any], limits: Limits
    ) -> tuple[Shares, float] | None:
        """Other shares and the seconds that they gain; None: this method partitions instead."""
        return None

    def add_device(self, device: int) -> None:
        """Include `device` from now on."""
