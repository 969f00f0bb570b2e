"""Results of planning that later plans reuse: one explicit cache, owned by the caller.

The engine owns one `PlanCache` for its lifetime and passes it to every call of the planner; so
does a simulation. A planner function called without a cache creates a temporary one. Keys hold all
inputs of a result by value, so an entry never goes stale.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Generic, TypeVar

from hetsched.models import SpeedFunction

if TYPE_CHECKING:
    from hetsched.planner.plan_table import PlanTable

Value = TypeVar("Value")

MAX_PLAN_TABLES = 128
"""Entries for pairs of device and load: a few loads for each device of a machine."""
MAX_SPLITS = 32
MAX_BOUNDS = 32
MAX_POOLED_CURVES = 32
"""Entries for groups of equal cores."""
MAX_DELAYED_CURVES = 256


class BoundedCache(Generic[Value]):
    """A mapping of at most `max_entries`; the least recently used entry is dropped first."""

    def __init__(self, max_entries: int) -> None:
        self._max_entries = max_entries
        self._entries: OrderedDict[Hashable, Value] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def get_or_compute(self, key: Hashable | None, compute: Callable[[], Value]) -> Value:
        """Return the entry for `key`, computing and storing it if it is missing.

        A key of None marks inputs that can't be compared: the value is computed every time.
        """
        if key is None:
            return compute()
        if key in self._entries:
            self._entries.move_to_end(key)
            return self._entries[key]
        value = self._entries[key] = compute()
        if len(self._entries) > self._max_entries:
            self._entries.popitem(last=False)
        return value


class PlanCache:
    """One bounded cache for each kind of result.

    Not thread-safe: use each PlanCache from one thread only. The engine uses its cache in the
    planner's thread.

    Attributes
    ----------
    plan_tables : BoundedCache of PlanTable
        By phase curves, memory and load of one device.
    splits : BoundedCache of (shares, curves)
        By load and the curves of all devices.
    bounds : BoundedCache of float, seconds
        By kind of bound, load and devices.
    pooled_curves : BoundedCache of list of SpeedFunction
        By the curves of equal cores, by identity: learnt curves must not change afterwards.
    delayed_curves : BoundedCache of SpeedFunction
        By curve and delay.
    """

    def __init__(self) -> None:
        self.plan_tables: BoundedCache[PlanTable] = BoundedCache(MAX_PLAN_TABLES)
        self.splits: BoundedCache[tuple[tuple[int, ...], tuple[SpeedFunction, ...]]] = (
            BoundedCache(MAX_SPLITS)
        )
        self.bounds: BoundedCache[float] = BoundedCache(MAX_BOUNDS)
        self.pooled_curves: BoundedCache[list[SpeedFunction]] = BoundedCache(MAX_POOLED_CURVES)
        self.delayed_curves: BoundedCache[SpeedFunction] = BoundedCache(MAX_DELAYED_CURVES)
