"""Values that kernels derive from their rows and keep from iteration to iteration."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

Value = TypeVar("Value")


class RowCache(Generic[Value]):
    """Values by range of rows.

    No two ranges overlap, so all values together are at most as large as those of the whole load.
    Those of rows that moved away stay, in case the rows come back.
    """

    def __init__(self) -> None:
        self._values: dict[tuple[int, int], Value] = {}

    def get(self, first: int, stop: int, make: Callable[[], Value]) -> Value:
        """Return the value of the rows `first` up to `stop`, made by `make` if there is none."""
        key = (first, stop)
        if key not in self._values:
            for other in list(self._values):
                if other[0] < stop and first < other[1]:
                    del self._values[other]
            self._values[key] = make()
        return self._values[key]
