"""Bytes that a load needs on a device (mu_iota, mu_w, mu_o and b of Ilic & Sousa, section 2)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from hetsched.errors import DataError, UsageError

Bytes = float | Callable[[int], float]
"""Bytes of one unit, or a function from units to bytes."""


@dataclass(frozen=True, kw_only=True)
class MemoryDemand:
    """Bytes that chunks need in device memory, and the limit they must fit.

    Attributes
    ----------
    input_bytes, work_bytes, output_bytes : float, bytes a unit; or callable, units -> bytes
    limit : int or None, bytes
        What is usable on the device; None: no limit.
    resident_bytes : int, bytes
        Data that stays on the device for the whole run.
    work : "sum" or "max"
        "max": the chunks that are resident together share one work area.
    """

    input_bytes: Bytes
    work_bytes: Bytes
    output_bytes: Bytes
    limit: int | None = None
    resident_bytes: int = 0
    work: Literal["sum", "max"] = "sum"

    def __post_init__(self) -> None:
        if self.work not in ("sum", "max"):
            raise UsageError(f'work: {self.work!r} is not "sum" or "max"')
        if self.limit is not None and self.limit < 0:
            raise UsageError(f"limit: {self.limit} bytes is negative")

    def data(self, units: int) -> int:
        """Bytes of the input and output buffers of one chunk of `units`."""
        return round(_bytes(self.input_bytes, units) + _bytes(self.output_bytes, units))

    def workspace(self, units: int) -> int:
        """Bytes of the work area of one chunk of `units`."""
        return round(_bytes(self.work_bytes, units))

    def need(self, chunks: Iterable[int]) -> int:
        """Bytes of all `chunks` (units each) in device memory together, residents included."""
        sizes = list(chunks)
        works = [self.workspace(size) for size in sizes]
        work = max(works, default=0) if self.work == "max" else sum(works)
        return self.resident_bytes + sum(self.data(size) for size in sizes) + work

    def fits(self, chunks: Iterable[int]) -> bool:
        return self.limit is None or self.need(chunks) <= self.limit

    def most(self, load: int, together: int = 1) -> int:
        """The largest chunk, units, at most `load`, of which `together` fit at once. O(log load).

        Raises
        ------
        DataError
            Not even one unit fits.
        """
        if not self.fits([1] * together):
            raise DataError(
                f"one unit needs {self.need([1] * together)} bytes of device memory,"
                f" the limit is {self.limit}"
            )
        low, high = 1, max(1, load)
        while low < high:
            middle = (low + high + 1) // 2
            if self.fits([middle] * together):
                low = middle
            else:
                high = middle - 1
        return low


def _bytes(size: Bytes, units: int) -> float:
    return size(units) if callable(size) else size * units
