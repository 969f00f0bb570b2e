"""Plans kept from job to job, each used by one kernel at a time.

A kernel takes the plans it needs; they return when it is garbage-collected. So threads never share
a plan, and a warm `make` takes microseconds.
"""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Plan = TypeVar("Plan")


class Pool(Generic[Plan]):
    """At most `capacity` idle plans by key; the least recently used is dropped first."""

    def __init__(self, capacity: int = 64) -> None:
        self._capacity = capacity
        self._idle: OrderedDict[int, tuple[Hashable, Plan]] = OrderedDict()
        self._lock = threading.Lock()

    def take(self, key: Hashable, make: Callable[[], Plan]) -> Plan:
        """Return an idle plan for `key`, or a new one."""
        with self._lock:
            for number, (idle_key, plan) in reversed(self._idle.items()):
                if idle_key == key:
                    del self._idle[number]
                    return plan
        return make()

    def lend(self, borrower: object, plans: dict[Hashable, Plan]) -> None:
        """Return `plans` to the pool once `borrower` is garbage-collected."""
        weakref.finalize(borrower, self._give, plans).atexit = False

    def _give(self, plans: dict[Hashable, Plan]) -> None:
        dropped: list[Plan] = []
        with self._lock:
            for key, plan in plans.items():
                self._idle[id(plan)] = (key, plan)
            while len(self._idle) > self._capacity:
                dropped.append(self._idle.popitem(last=False)[1][1])
        dropped.clear()  # plans are freed outside the lock: their destructors take other locks
