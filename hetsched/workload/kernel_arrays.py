"""The mappings that kernels get: their arrays can be written, but not replaced."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


class KernelArrays(Mapping[str, Any]):
    """Name -> array. Not a dict, which can be changed in a dozen ways.

    Another array in its place would be lost, and whatever is in the output's memory would be taken
    for the result.
    """

    def __init__(self, arrays: Mapping[str, Any]) -> None:
        self._arrays = arrays

    def __getitem__(self, name: str) -> Any:
        return self._arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    def __setitem__(self, name: str, value: Any) -> None:
        if self.get(name) is not value:  # it is after ``outputs["y"] += 1``
            raise TypeError(
                f"a kernel can't replace the array {name!r}: write into it,"
                f" outputs[{name!r}][...] = ..."
            )
