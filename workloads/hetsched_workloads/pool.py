"""Plans that are kept from job to job, each used by one kernel at a time.

A kernel takes the plans that it needs and they come back when it is dropped: so a plan is never
shared between threads, whoever makes the kernels, and a warm `make` costs microseconds.
"""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Plan = TypeVar("Plan")


class Pool(Generic[Plan]):
    """Idle plans by key, at most `most` of them; the one unused for longest goes first."""

    def __init__(self, most: int = 64) -> None:
        self._most = most
        self._idle: OrderedDict[int, tuple[Hashable, Plan]] = OrderedDict()
        self._lock = threading.Lock()

    def take(self, key: Hashable, make: Callable[[], Plan]) -> Plan:
        """An idle plan for `key`, or a new one."""
        with self._lock:
            for number, (its_key, plan) in reversed(self._idle.items()):
                if its_key == key:
                    del self._idle[number]
                    return plan
        return make()

    def lend(self, borrower: object, plans: dict[Hashable, Plan]) -> None:
        """Take `plans` back once `borrower` is garbage."""
        weakref.finalize(borrower, self._give, plans).atexit = False

    def _give(self, plans: dict[Hashable, Plan]) -> None:
        dropped: list[Plan] = []
        with self._lock:
            for key, plan in plans.items():
                self._idle[id(plan)] = (key, plan)
            while len(self._idle) > self._most:
                dropped.append(self._idle.popitem(last=False)[1][1])
        dropped.clear()  # plans die outside the lock: their destructors take locks of their own
