"""Shares that only change when devices are lost or come back: balancing switched off."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hetsched.errors import DataError
from hetsched.models import Constant
from hetsched.partition.balancing.phase import DeviceTime
from hetsched.partition.balancing.splitting import is_measured
from hetsched.partition.distribution import Distribution, Limits
from hetsched.partition.geometric import geometric


class FixedSplit:
    """The part of a Balancer's interface that an IterationBalance uses.

    Parameters
    ----------
    load : int, units
    models : sequence of SpeedFunction or None
        Of each device, for its share. Equal shares while that of a present device is None.
    """

    reason = "balancing is off"

    def __init__(self, load: int, models: Sequence[Any | None], limits: Limits) -> None:
        self._models = list(models)
        self._load = load
        self._limits = limits
        self._lost: set[int] = set()
        self._adopted: Distribution | None = None

    def adopt(self, distribution: Distribution, models: Sequence[Any]) -> None:
        """Keep the split of a warm-up; its models count once devices are lost or come back."""
        if all(is_measured(model) for model in models):
            self._models = list(models)
        self._adopted = distribution

    def ask(self) -> Distribution:
        """Return the split over the devices that aren't lost."""
        if self._adopted is not None:
            return self._adopted
        present = [i for i in range(len(self._models)) if i not in self._lost]
        if not present:
            raise DataError(f"all {len(self._models)} devices are lost")
        models = [model for i in present if (model := self._models[i]) is not None]
        equal = [Constant(1.0)] * len(present)
        curves = models if len(models) == len(present) else equal
        part = geometric(curves, self._load, [self._limits[i] for i in present])
        shares = [0] * len(self._models)
        for i, share in zip(present, part.shares, strict=True):
            shares[i] = share
        return Distribution(tuple(shares), part.makespan, part.spread)

    def tell(self, times: Sequence[DeviceTime], shares: Sequence[int] | None = None) -> None:
        """Ignore an iteration."""

    def learn(self, shares: Sequence[int], times: Sequence[DeviceTime]) -> None:
        """Ignore an iteration."""

    def lose(self, device: int) -> None:
        self._lost.add(device)
        self._adopted = None

    def restore(self, device: int) -> None:
        self._lost.discard(device)
        self._adopted = None
