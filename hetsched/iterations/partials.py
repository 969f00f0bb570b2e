"""Partial results of reductions, in shared memory: by parity of the iteration and slot.

A device writes its own slot only, and each device combines all of them for itself, in the same
order, so that every device has the same values. Those of the previous iteration stay until the
present one is complete, so that it can be repeated. One more slot, the last, has combined values
where they can't be combined again: those that only the start computes, and those of a checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from hetsched.workload import Reduction

PARTIALS = "partials/"
"""Before the name of a reduction: the name of the array of its partial results."""

_COMBINE: dict[str, Callable[[Sequence[np.ndarray]], Any]] = {
    "sum": np.add.reduce,
    "max": np.maximum.reduce,
    "min": np.minimum.reduce,
}


def partials_shape(reduction: Reduction, slots: int) -> tuple[int, ...]:
    """Return the shape of the array of a reduction for `slots` devices: (2, slots + 1, ...)."""
    return (2, slots + 1, *reduction.shape)


def combined_slot(partials: np.ndarray) -> int:
    """Return the slot that has combined values."""
    return int(partials.shape[1]) - 1


def slot_of(
    partials: Mapping[str, np.ndarray], iteration: int, slot: int
) -> dict[str, np.ndarray]:
    """Return the arrays that the device of `slot` fills in an iteration."""
    return {name: array[iteration % 2, slot, ...] for name, array in partials.items()}


def combine(
    reduction: Reduction, partials: np.ndarray, iteration: int, slots: Sequence[int]
) -> np.ndarray:
    """Return the combined value of the devices of `slots`, which have rows, in their order."""
    parts = [np.asarray(partials[iteration % 2, slot]) for slot in slots]
    how = reduction.combine
    value = _COMBINE[how](parts) if isinstance(how, str) else how(parts)
    return np.array(value, dtype=reduction.dtype).reshape(reduction.shape)
