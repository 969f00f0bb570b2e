"""The cores and device names that are divided among the devices of one configuration."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from hetsched.devices.cpu import cores


@dataclass
class CorePool:
    """The cores that may be used, in order; configurations count them from 0.

    Attributes
    ----------
    cores : tuple of int
        The affinity mask.
    usable : int
        Number that may be busy at once: fewer than `cores` under a cgroup quota.
    reserved : set of int
        Cores reserved for one device.
    names : set of str
        Names of the devices probed so far.
    """

    cores: tuple[int, ...]
    usable: int
    reserved: set[int] = field(default_factory=set)
    names: set[str] = field(default_factory=set)

    @property
    def is_pinned(self) -> bool:
        """Whether threads are pinned. Not under a quota, or every container on the machine would
        choose the same cores."""
        return self.usable == len(self.cores)

    def free(self) -> tuple[int, ...]:
        """The cores that aren't reserved."""
        return tuple(core for core in self.cores if core not in self.reserved)

    def reserve(self, number: int) -> int:
        """Reserve core `number`, 0 <= number < `usable`, and return its id."""
        core = self.cores[number]
        self.reserved.add(core)
        return core


def core_pool() -> CorePool:
    """Return the cores of this process, all free."""
    allowed = tuple(cores.allowed())
    return CorePool(allowed, max(1, math.ceil(min(len(allowed), cores.quota()))))
