"""Memory that a load needs on a device (mu_iota, mu_w, mu_o and b of Ilic & Sousa, section 2)."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from numbers import Real
from typing import Any, Literal

from hetsched.errors import DataError, HetschedError, UsageError

Bytes = float | Callable[[int], float]
"""Bytes of one unit, or a function from units to bytes."""

_PLAIN = frozenset((int, float))
MAX_TABULATED_SIZES = 1 << 16
"""Sizes whose bytes are all compared where bytes are a function. Of larger sizes a few are."""
SIZES_PER_OCTAVE = 16
"""Pairs of neighbouring sizes, one even and one odd, compared beyond. Arbitrary."""


@dataclass(frozen=True, kw_only=True)
class MemoryDemand:
    """Bytes that chunks need in device memory, and the limit that they must not exceed.

    Attributes
    ----------
    input_bytes, work_bytes, output_bytes : float, bytes per unit; or callable, units -> bytes
    limit : int or None, bytes
        Usable on the device; None: no limit.
    resident_bytes : int, bytes
        Data that stays on the device for the whole run.
    work : "sum" or "max"
        "max": chunks that are in device memory together share one work area.

    Raises
    ------
    UsageError
        Bytes that are negative, not finite or not a number, passed here or returned by a callable
        later; a callable that raises (a HetschedError is passed on); another value of `work`.
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
            raise UsageError(f'work: {self.work!r}, must be "sum" or "max"')

    def data(self, units: int) -> int:
        """Return the bytes of the input and output buffers of one chunk of `units`."""
        ins, outs = self.input_bytes, self.output_bytes
        return round(
            (_bytes("input_bytes", ins, units) if callable(ins) else ins * units)
            + (_bytes("output_bytes", outs, units) if callable(outs) else outs * units)
        )

    def workspace(self, units: int) -> int:
        """Return the bytes of the work area of one chunk of `units`."""
        work = self.work_bytes
        return round(_bytes("work_bytes", work, units) if callable(work) else work * units)

    def need(self, chunks: Iterable[int]) -> int:
        """Return the bytes of `chunks` (units) held in memory together, residents included."""
        sizes = list(chunks)
        works = {size: self.workspace(size) for size in set(sizes)}
        data = {size: self.data(size) for size in works}
        if self.work == "max":
            work = max(works.values(), default=0)
        else:
            work = sum([works[size] for size in sizes])
        return self.resident_bytes + sum([data[size] for size in sizes]) + work

    def fits(self, chunks: Iterable[int]) -> bool:
        return self.limit is None or self.need(chunks) <= self.limit

    def monotone(self) -> MemoryDemand:
        """Return the demand in which a chunk needs at least as much as any smaller one.

        An odd batch may need a larger work area than the next even one. What is reserved for a
        chunk must hold any smaller one, too, because other devices may take parts of it.
        """
        names = ("input_bytes", "work_bytes", "output_bytes")
        functions = {name: getattr(self, name) for name in names}
        changed: dict[str, Any] = {
            name: _RunningMaximum(name, each) for name, each in functions.items() if callable(each)
        }
        return replace(self, **changed) if changed else self

    def in_granules(self, granule: int) -> MemoryDemand:
        """Return the demand as a function of granules of `granule` units each."""
        changed: dict[str, Any] = {
            name: _scaled(getattr(self, name), granule)
            for name in ("input_bytes", "work_bytes", "output_bytes")
        }
        return replace(self, **changed)

    def max_chunk(self, load: int, count: int = 1) -> int:
        """Return the largest size, at most `load` units, of which `count` chunks fit. O(log load).

        Raises
        ------
        DataError
            Chunks of one unit don't fit.
        UsageError
            `load` or `count` isn't an integer.
        """
        load, count = _integer("load", load), _integer("count", count)
        if not self.fits([1] * count):
            raise DataError(
                f"one unit needs {self.need([1] * count)} bytes of device memory,"
                f" the limit is {self.limit}"
            )
        low, high = 1, max(1, load)
        guesses = self._guessed_chunks(high, count)
        while low < high:
            size = next(guesses, 0)
            if not low < size <= high:
                size = (low + high + 1) // 2
            if self.fits([size] * count):
                low = size
            else:
                high = size - 1
        return low

    def _guessed_chunks(self, load: int, count: int) -> Iterator[int]:
        """Yield sizes near the largest of which `count` chunks fit: all, or by a unit's bytes."""
        yield load
        unit_bytes = self.need([1] * count) - self.resident_bytes
        if unit_bytes and self.limit is not None:
            fitting = (self.limit - self.resident_bytes) // unit_bytes
            yield fitting
            yield fitting + 1


def _scaled(size: Bytes, granule: int) -> Bytes:
    if callable(size):
        return lambda granules: size(granule * granules)
    return size * granule


@dataclass(frozen=True)
class _RunningMaximum:
    """The maximum of `function` over all sizes up to the requested one; bytes."""

    name: str
    function: Callable[[int], float]
    _maxima: list[float] = field(default_factory=lambda: [0.0], compare=False, repr=False)
    """By size, extended on request."""

    def __call__(self, units: int) -> float:
        maxima = self._maxima
        for size in range(len(maxima), min(units, MAX_TABULATED_SIZES) + 1):
            maxima.append(max(maxima[-1], _bytes(self.name, self.function, size)))
        if units < len(maxima):
            return maxima[units]
        beyond = (_bytes(self.name, self.function, size) for size in _sampled_sizes(units))
        return max(maxima[-1], *beyond)


def _sampled_sizes(units: int) -> Iterator[int]:
    """Yield `units`, and pairs of smaller sizes, from MAX_TABULATED_SIZES on."""
    yield units
    steps = SIZES_PER_OCTAVE * math.log2(units / MAX_TABULATED_SIZES)
    for step in range(math.ceil(steps)):
        size = int(MAX_TABULATED_SIZES * 2 ** (step / SIZES_PER_OCTAVE))
        yield size
        yield min(size + 1, units)


def _bytes(name: str, size: Callable[[int], float], units: int) -> float:
    """Return the bytes of `units`. Planning loops call it: a valid number costs one comparison."""
    try:
        nbytes = size(units)
    except HetschedError:
        raise
    except Exception as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise UsageError(f"{name} of {units!r} units failed, {reason[:200]}") from error
    if type(nbytes) in _PLAIN and 0 <= nbytes < math.inf:
        return nbytes
    return _checked(f"{name} of {units!r} units", nbytes)


def _checked(name: str, size: Any) -> float:
    """Return `size`. Raises UsageError unless it is a finite number of bytes, 0 or more."""
    if isinstance(size, bool) or not isinstance(size, Real):
        text = " ".join(repr(size).split())
        raise UsageError(f"{name}: {text[:60]}, must be a number of bytes")
    number: Any = size  # Real doesn't declare comparisons with numbers
    if not 0 <= number < math.inf:
        raise UsageError(f"{name}: {number} bytes, must be finite and 0 or more")
    return number  # type: ignore[no-any-return]


def _integer(name: str, value: Any) -> int:
    try:
        return operator.index(value)
    except TypeError:
        raise UsageError(f"{name}: {value!r}, must be an integer") from None
