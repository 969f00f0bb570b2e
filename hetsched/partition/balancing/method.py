"""The method of a Balancer: models, partitioner and imbalance measure."""

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
    """Consecutive unbalanced runs after which a balanced distribution is reconsidered."""

    def __init__(self, new_model: Callable[[], Learner], split: Split) -> None:
        self.new_model = new_model
        self.split = split

    def learner_of(self, model: Any) -> Learner:
        """Return the learner of a model that the caller supplies."""
        return Learner(model)

    def imbalance(self, shares: Shares, readings: Sequence[Reading], limits: Limits) -> float:
        """Return the imbalance, to be compared with the tolerance."""
        return relative_spread(shares, [reading.busy for reading in readings], limits)

    def balanced_reason(self, readings: Sequence[Reading]) -> str:
        """Return the reason to keep shares whose imbalance is within the tolerance."""
        return BALANCED

    def trade(
        self, shares: Shares, readings: Sequence[Reading], models: Sequence[Any], limits: Limits
    ) -> tuple[Shares, float] | None:
        """Return other shares and their gain in seconds; None for methods that partition."""
        return None

    def add_device(self, device: int) -> None:
        """Include `device` in later runs."""
