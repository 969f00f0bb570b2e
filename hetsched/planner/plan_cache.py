"""Results of planning that later plans reuse: one explicit cache, owned by the caller.

The engine owns one `PlanCache` for its lifetime and passes it to every call of the planner; so
does a simulation. A planner function called without a cache creates a temporary one. Keys hold all
inputs of a result by value, so an entry never goes stale.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, TypeVar

from hetsched.bounded_cache import BoundedCache
from hetsched.models import DeviceModel, SpeedFunction

if TYPE_CHECKING:
    from hetsched.planner.plan_table import PlanTable

Value = TypeVar("Value")
PooledModels = tuple[tuple[DeviceModel | None, ...], list[DeviceModel | None]]

MAX_PLAN_TABLES = 128
"""Entries for pairs of device and load: a few loads for each device of a machine."""
MAX_SPLITS = 32
MAX_POOLED_CURVES = 32
"""Entries for groups of equal cores."""
MAX_POOLED_MODELS = 32
MAX_DELAYED_CURVES = 256


class ResultCache(BoundedCache[Hashable, Value]):
    """Results by their inputs; a key of None marks inputs that can't be compared."""

    def __init__(self, max_entries: int) -> None:
        super().__init__(max_entries=max_entries)

    def get_or_compute(self, key: Hashable | None, compute: Callable[[], Value]) -> Value:
        """Return the result for `key`, computing and keeping it if it is missing."""
        return compute() if key is None else super().get_or_compute(key, compute)


class PlanCache:
    """One bounded cache for each kind of result.

    Not thread-safe: use each PlanCache from one thread only. The engine uses its cache in the
    planner's thread.

    Attributes
    ----------
    plan_tables : ResultCache of PlanTable
        By phase curves, memory and load of one device.
    splits : ResultCache of (shares, curves)
        By load and the curves of all devices.
    pooled_curves : ResultCache of list of SpeedFunction
        By the curves of equal cores, by identity: learnt curves must not change afterwards.
    pooled_models : ResultCache of (models, pooled models)
        By the identity of the models of equal cores.
    delayed_curves : ResultCache of SpeedFunction
        By curve and delay.
    curves_with_calls : ResultCache of SpeedFunction
        By curve and cost of a call.
    """

    def __init__(self) -> None:
        self.plan_tables: ResultCache[PlanTable] = ResultCache(MAX_PLAN_TABLES)
        self.splits: ResultCache[tuple[tuple[int, ...], tuple[SpeedFunction, ...]]] = ResultCache(
            MAX_SPLITS
        )
        self.pooled_curves: ResultCache[list[SpeedFunction]] = ResultCache(MAX_POOLED_CURVES)
        self.pooled_models: ResultCache[PooledModels] = ResultCache(MAX_POOLED_MODELS)
        self.delayed_curves: ResultCache[SpeedFunction] = ResultCache(MAX_DELAYED_CURVES)
        self.curves_with_calls: ResultCache[SpeedFunction] = ResultCache(MAX_DELAYED_CURVES)
