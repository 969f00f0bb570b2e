"""Co-runners: which neighbours of a device were busy while it was measured. Pure.

Devices that share a resource (the memory bandwidth of a NUMA node, a PCIe root port) slow each
other down, so observations hold for the co-runners they were made with. Who the neighbours are is
decided in `planner.neighbours`.
"""

from __future__ import annotations

from typing import Literal

CoRunners = Literal["none", "some", "all"]
"""How many of a device's neighbours were busy."""
CO_RUNNERS: tuple[CoRunners, ...] = ("none", "some", "all")
"""Fewest first."""
_NEAREST: dict[CoRunners, tuple[CoRunners, ...]] = {
    "none": ("none", "some", "all"),
    "some": ("some", "all", "none"),
    "all": ("all", "some", "none"),
}


def nearest_first(co_runners: CoRunners) -> tuple[CoRunners, ...]:
    """Return all keys, the nearest to `co_runners` first; of two equally near ones the larger."""
    return _NEAREST[co_runners]


def fewer(co_runners: CoRunners) -> tuple[CoRunners, ...]:
    """Return the keys of fewer co-runners, the nearest first."""
    return CO_RUNNERS[: CO_RUNNERS.index(co_runners)][::-1]
