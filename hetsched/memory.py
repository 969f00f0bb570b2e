"""Bytes that a load needs on a device (mu_iota, mu_w, mu_o and b of Ilic & Sousa, section 2)."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from numbers import Real
from typing import Any, Literal

from hetsched.errors import DataError, HetschedError, UsageError

Bytes = float | Callable[[int], float]
"""Bytes of one unit, or a function from units to bytes."""

_PLAIN = frozenset((int, float))


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

    Raises
    ------
    UsageError
        Bytes that are negative, infinite or no number, here or later as a callable's answer; a
        callable that fails (errors of ours are passed on); another `work`.
    """

    input_bytes: Bytes
    work_bytes: Bytes
    output_bytes: Bytes
    limit: int | None = None
    resident_bytes: int = 0
    work: Literal["sum", "max"] = "sum"

    def __post_init__(self) -> None:
        for name in ("input_bytes", "work_bytes", "output_bytes"):
            if not callable(getattr(self, name)):
                _checked(name, getattr(self, name))
        _checked("resident_bytes", self.resident_bytes)
        if self.limit is not None:
            _checked("limit", self.limit)
        if self.work not in ("sum", "max"):
            raise UsageError(f'work: {self.work!r} is not "sum" or "max"')

    def data(self, units: int) -> int:
        """Bytes of the input and output buffers of one chunk of `units`."""
        return round(
            _bytes("input_bytes", self.input_bytes, units)
            + _bytes("output_bytes", self.output_bytes, units)
        )

    def workspace(self, units: int) -> int:
        """Bytes of the work area of one chunk of `units`."""
        return round(_bytes("work_bytes", self.work_bytes, units))

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
        UsageError
            `load` or `together` is no whole number.
        """
        load, together = _whole("load", load), _whole("together", together)
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


def _bytes(name: str, size: Bytes, units: int) -> float:
    """Asked in the planners' loops, so that what is right takes one comparison."""
    try:
        found = size(units) if callable(size) else size * units
    except HetschedError:
        raise
    except Exception as error:
        said = " ".join(f"{type(error).__name__}: {error}".split())
        raise UsageError(f"{name} of {units!r} units failed, {said[:200]}") from error
    if type(found) in _PLAIN and 0 <= found < math.inf:
        return found
    return _checked(f"{name} of {units!r} units", found)


def _checked(name: str, size: Any) -> float:
    """`size` itself. Raises UsageError unless it is a finite number of bytes, 0 or more."""
    if isinstance(size, bool) or not isinstance(size, Real):
        shown = " ".join(repr(size).split())
        raise UsageError(f"{name}: {shown[:60]}, it must be a number of bytes")
    found: Any = size  # Real doesn't say that it compares with numbers
    if not 0 <= found < math.inf:
        raise UsageError(f"{name}: {found} bytes, it must be 0 or more and finite")
    return found  # type: ignore[no-any-return]


def _whole(name: str, value: Any) -> int:
    try:
        return operator.index(value)
    except TypeError:
        raise UsageError(f"{name}: {value!r} must be a whole number") from None
