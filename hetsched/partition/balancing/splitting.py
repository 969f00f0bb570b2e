"""Calls of a partitioner: unmeasured devices get equal shares, and its result is checked."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from hetsched.errors import UsageError
from hetsched.models import Constant, SpeedFunction
from hetsched.partition.constant import constant
from hetsched.partition.distribution import Distribution, Limits

Split = Callable[[Sequence[Any], int, Sequence[int | None]], Distribution]
"""(models, load, limits) -> Distribution."""


def split_with_unmeasured(
    split: Split, models: Sequence[Any], load: int, limits: Limits
) -> Distribution:
    """Call `split` for the measured devices; give each of the others an equal share.

    With fewer units than devices, unmeasured devices come first.
    """
    measured = [i for i, model in enumerate(models) if is_measured(model)]
    if len(measured) == len(models):
        return checked_split(split, models, load, limits)
    order = [i for i in range(len(models)) if i not in measured] + measured
    equal = constant([Constant(1.0)] * len(order), load, [limits[i] for i in order]).shares
    shares = [share for _, share in sorted(zip(order, equal, strict=True))]
    if measured:
        part = sum(shares[i] for i in measured)
        distribution = checked_split(
            split, [models[i] for i in measured], part, [limits[i] for i in measured]
        )
        for i, share in zip(measured, distribution.shares, strict=True):
            shares[i] = share
    return Distribution(tuple(shares), math.nan, math.nan, "devices to be measured first")


def checked_split(split: Split, models: Sequence[Any], load: int, limits: Limits) -> Distribution:
    """Call `split` and check its result.

    Raises
    ------
    UsageError
        It returned no Distribution, or one that breaks the load or the limits.
    """
    distribution = split(models, load, limits)
    check_distribution(distribution, load, limits)
    return distribution


def check_distribution(distribution: Distribution, load: int, limits: Limits) -> None:
    """Raise UsageError unless the shares sum to `load`, each within its limit."""
    if not isinstance(distribution, Distribution):
        raise UsageError(f"split: returned {distribution!r}, it must be a Distribution")
    shares = distribution.shares
    if len(shares) != len(limits) or sum(shares) != load:
        raise UsageError(
            f"split: shares {shares} must sum to {load} units on {len(limits)} devices"
        )
    for share, limit in zip(shares, limits, strict=True):
        if share < 0 or (limit is not None and share > limit):
            raise UsageError(f"split: a share of {share} units, the device takes 0 to {limit}")


def is_measured(model: SpeedFunction) -> bool:
    """Return whether `model` can predict a time."""
    try:
        model.time(1.0)
    except UsageError:
        return False
    return True
