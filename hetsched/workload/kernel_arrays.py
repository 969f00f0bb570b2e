"""The mappings that kernels get: their arrays can be written, but not replaced."""

from __future__ import annotations

from typing import Any


class KernelArrays(dict[str, Any]):
    """Name -> array.

    Another array in its place would be lost, and whatever is in the output's memory would be taken
    for the result.
    """

    def __setitem__(self, name: str, value: Any) -> None:
        if self.get(name) is not value:  # it is after ``outputs["y"] += 1``
            raise TypeError(
                f"a kernel can't replace the array {name!r}: write into it,"
                f" outputs[{name!r}][...] = ..."
            )
