"""A flow by loops that numba compiles: each population is read and written once per step.

A block of a row is streamed into an area that stays in the first cache, where populations bounce
back and collide; then it is written. Each cell takes the same operations whatever the split, so
that results have the same bits. Compiled in `make`, for about two seconds, once per dtype: numba
keeps the code on disk.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numba
import numpy as np

from hetsched.workload import KernelContext, RowCache, StageCall, StageKernel
from hetsched_lbm import LbmParams, array_stages
from hetsched_lbm.lattice import DIRECTIONS, OPPOSITE
from hetsched_lbm.walls import Links, lid_gains, links

COLUMNS = 256
"""Of a block: its 9 populations in float64 take 18 KiB. A constant, so that the compiler sees that
they don't overlap, and computes several cells at once."""
_ALONG = tuple(along for along, _ in DIRECTIONS)
_ACROSS = tuple(across for _, across in DIRECTIONS)

_Loop = Callable[..., Any]


def _compiled(*fastmath: str) -> Callable[[_Loop], _Loop]:
    """Return a decorator; `fastmath`: what LLVM may presume of numbers."""
    options: dict[str, Any] = {"nogil": True, "error_model": "numpy", "fastmath": set(fastmath)}

    def compile_(function: _Loop) -> _Loop:
        try:
            loop: _Loop = numba.njit(cache=True, **options)(function)
        except RuntimeError:  # no folder is writable
            loop = numba.njit(**options)(function)
        return loop

    return compile_


class _Collision(NamedTuple):
    """Numbers in the populations' type: 1 - omega, omega w, g / 2, 3 (1 / omega - 1 / 2) g."""

    keep: Any
    axial: Any
    diagonal: Any
    half_force: Any
    push: Any


def make(p: LbmParams, load: int, context: KernelContext) -> Mapping[str, StageKernel]:
    """Return the kernels by stage; compiles on a small array first."""
    flow = CompiledFlow(p)
    flow.compile()
    return {**array_stages.make(p, load, context), "step": flow.step}


class CompiledFlow:
    """The kernel of a step, with its area; one thread at a time."""

    def __init__(self, p: LbmParams) -> None:
        self._p = p
        self._dtype = dtype = np.dtype(p.dtype)
        self._area = np.zeros(9 * COLUMNS, dtype)
        self._sums = np.zeros(COLUMNS)
        self._gains = lid_gains(p).astype(dtype)
        self._links: RowCache[Links] = RowCache()
        omega, g = 1 / p.relaxation_time, p.force
        numbers = (1 - omega, omega / 9, omega / 36, g / 2, 3 * (1 / omega - 0.5) * g)
        self._collision = _Collision(*(dtype.type(number) for number in numbers))

    def compile(self) -> None:
        """Advance two cells."""
        f = np.zeros((3, 9, 2), self._dtype)
        none = np.zeros(2, np.int64), np.zeros(0, np.int32), np.zeros(0, np.uint8)
        self.advance(f, f[:1].copy(), Links(*none))

    def step(self, call: StageCall) -> None:
        rows, mask = call.rows, call.inputs.get("mask")
        found = self._links.get(rows.first, rows.stop, lambda: links(self._p, mask, rows, COLUMNS))
        excess, change = self.advance(call.inputs["f"], call.outputs["f"], found)
        call.partials["excess"][...] = excess
        call.partials["steps"][...] = call.values.before["steps"] + 1
        if self._p.tolerance > 0:
            call.partials["change"][...] = change

    def advance(self, f: np.ndarray, new: np.ndarray, links: Links) -> tuple[float, float]:
        """Write new populations; return the mass in excess of 1 a cell, and the largest change."""
        self._sums[:] = 0
        change = _step(
            f,
            new,
            self._collision,
            (links.starts, links.columns, links.codes, self._gains),
            self._area,
            self._sums,
            self._p.tolerance > 0,
        )
        return float(self._sums.sum()), float(change)


@_compiled("contract")
def _step(
    f: Any,
    new: Any,
    collision: Any,
    links: Any,
    area: Any,
    sums: Any,
    has_change: bool,
) -> Any:
    """Advance the rows of `new`, add up their densities; return the largest change.

    One function, since numba counts references to the slices that another one gets: the atomic
    operations of that would wait for all stores each time.
    """
    cols, number, change = new.shape[2], 0, area[0] - area[0]
    for y in range(len(new)):
        for first in range(0, cols, COLUMNS):
            count = min(COLUMNS, cols - first)
            for k in range(9):  # populations come from the neighbours; rows are periodic
                along = _ALONG[k]
                low = 1 if first == 0 and along == 1 else 0
                high = count - 1 if first + count == cols and along == -1 else count
                source = f[y + 1 - _ACROSS[k], k, first + low - along : first + high - along]
                block = area[k * COLUMNS + low : k * COLUMNS + high]
                for i in range(high - low):
                    block[i] = source[i]
                if low == 1:
                    area[k * COLUMNS] = f[y + 1 - _ACROSS[k], k, cols - 1]
                if high < count:
                    area[k * COLUMNS + high] = f[y + 1 - _ACROSS[k], k, 0]
            _bounce(f, y + 1, first, number, links, area)
            _collide(area, count, collision, sums)
            if has_change:
                change = max(change, _largest_change(f, y + 1, first, count, area))
            for k in range(9):
                target = new[y, k, first : first + count]
                block = area[k * COLUMNS : k * COLUMNS + count]
                for i in range(count):
                    target[i] = block[i]
            number += 1
    return change


@_compiled("contract")
def _bounce(f: Any, y: int, first: int, number: int, links: Any, area: Any) -> None:
    """Replace populations that would come from a wall by those that went there."""
    starts, columns, codes, gains = links
    for i in range(starts[number], starts[number + 1]):
        column, k = columns[i], codes[i] % 9
        value = f[y, OPPOSITE[k], column]
        if codes[i] >= 9:
            value += gains[k]
        area[k * COLUMNS + column - first] = value


@_compiled("contract")
def _collide(area: Any, count: int, collision: Any, sums: Any) -> None:
    """Replace populations by those after the collision, as in `lattice`; add up rho - 1."""
    keep, axial, diagonal, half_force, push = collision
    number = area.dtype.type
    one, c, three, four = number(1), number(4.5), number(3), number(4)
    for i in range(count):
        f0 = area[i]
        f1, f3 = area[COLUMNS + i], area[3 * COLUMNS + i]
        f2, f4 = area[2 * COLUMNS + i], area[4 * COLUMNS + i]
        f5, f7 = area[5 * COLUMNS + i], area[7 * COLUMNS + i]
        f6, f8 = area[6 * COLUMNS + i], area[8 * COLUMNS + i]
        excess = f0 + (((f1 + f3) + (f2 + f4)) + ((f5 + f7) + (f6 + f8)))
        sums[i] += excess
        density = one + excess
        inverse = one / density
        along = (f1 - f3) + ((f5 - f7) + (f8 - f6)) + half_force * density
        across = (f2 - f4) + ((f5 - f7) - (f8 - f6))
        u, v = along * inverse, across * inverse
        base = excess - number(1.5) * (u * along + v * across) - push * along
        pushed, push_3 = push * density, push * three
        area[i] = keep * f0 + four * axial * base
        even, odd = base + (c * u + push_3) * along, three * along + pushed
        area[COLUMNS + i] = keep * f1 + axial * (even + odd)
        area[3 * COLUMNS + i] = keep * f3 + axial * (even - odd)
        even, odd = base + c * v * across, three * across
        area[2 * COLUMNS + i] = keep * f2 + axial * (even + odd)
        area[4 * COLUMNS + i] = keep * f4 + axial * (even - odd)
        sum_ = along + across
        even, odd = base + (c * (u + v) + push_3) * sum_, three * sum_ + pushed
        area[5 * COLUMNS + i] = keep * f5 + diagonal * (even + odd)
        area[7 * COLUMNS + i] = keep * f7 + diagonal * (even - odd)
        difference = along - across
        even, odd = base + (c * (u - v) + push_3) * difference, three * difference + pushed
        area[8 * COLUMNS + i] = keep * f8 + diagonal * (even + odd)
        area[6 * COLUMNS + i] = keep * f6 + diagonal * (even - odd)


@_compiled("nnan", "nsz", "reassoc")
def _largest_change(f: Any, y: int, first: int, count: int, area: Any) -> Any:
    largest = area[0] - area[0]
    for k in range(9):
        former, block = f[y, k, first : first + count], area[k * COLUMNS :]
        for i in range(count):
            largest = max(largest, abs(block[i] - former[i]))
    return largest
