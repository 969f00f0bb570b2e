"""Rectangles of a grid's cells, and what goes from those that hold cells to those that need them.

Every host computes the same list from the same rectangles, so no message says what is in another.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from hetsched.cluster.mapping import Ints

Shape = tuple[int, int]


class Box(NamedTuple):
    """Rows and columns from `top` and `left` up to, but not including, `bottom` and `right`."""

    top: int
    bottom: int
    left: int
    right: int

    @classmethod
    def whole(cls, shape: Shape) -> Box:
        return cls(0, shape[0], 0, shape[1])

    @property
    def cells(self) -> int:
        return (self.bottom - self.top) * (self.right - self.left)

    @property
    def shape(self) -> Shape:
        return self.bottom - self.top, self.right - self.left

    def moved(self, down: int, right: int) -> Box:
        return Box(self.top + down, self.bottom + down, self.left + right, self.right + right)

    def common(self, other: Box) -> Box:
        """Return the cells of both; without cells if there are none."""
        top, left = max(self.top, other.top), max(self.left, other.left)
        bottom = max(top, min(self.bottom, other.bottom))
        return Box(top, bottom, left, max(left, min(self.right, other.right)))

    def framed(self, width: int, shape: Shape, periodic: tuple[bool, bool]) -> Box:
        """Return the box with `width` cells more on each side; beyond an edge if it's periodic."""
        box = Box(self.top - width, self.bottom + width, self.left - width, self.right + width)
        inside = box.common(Box.whole(shape))
        rows = box if periodic[0] else inside
        columns = box if periodic[1] else inside
        return Box(rows.top, rows.bottom, columns.left, columns.right)


class Held(NamedTuple):
    """A rectangle and its host; "" is the coordinator."""

    host: str
    box: Box


class Transfer(NamedTuple):
    """Cells that go from rectangle `source` to `target`: where in the grid, and where there.

    `there` is in the target's numbering, which goes on beyond periodic edges.
    """

    source: int
    target: int
    here: Box
    there: Box


def transfers(
    sources: Sequence[Held],
    targets: Sequence[Held],
    width: int,
    shape: Shape,
    periodic: tuple[bool, bool],
    *,
    frames: bool = False,
) -> Iterator[Transfer]:
    """Yield what fills the targets, framed by `width` cells, in the order of targets and sources.

    With `frames` the targets are the sources, and have their own cells already.
    """
    shifts = [(-1, 0, 1) if each else (0,) for each in periodic]
    boxes: Ints = np.array([held.box for held in sources], np.int64).reshape(-1, 4)
    for index, target in enumerate(targets):
        framed = target.box.framed(width, shape, periodic)
        for down, right in itertools.product(*shifts):
            image = framed.moved(down * shape[0], right * shape[1])
            near = np.flatnonzero(
                (boxes[:, 0] < image.bottom)
                & (boxes[:, 1] > image.top)
                & (boxes[:, 2] < image.right)
                & (boxes[:, 3] > image.left)
            )
            for source in near.tolist():
                if frames and source == index and not down and not right:
                    continue
                here = sources[source].box.common(image)
                there = here.moved(-down * shape[0], -right * shape[1])
                yield Transfer(source, index, here, there)


def cut(array: npt.NDArray[Any], axes: tuple[int, int], part: Box) -> npt.NDArray[Any]:
    index: list[slice] = [slice(None)] * array.ndim
    index[axes[0]] = slice(part.top, part.bottom)
    index[axes[1]] = slice(part.left, part.right)
    return array[tuple(index)]


def shape_with(shape: Sequence[int], axes: tuple[int, int], box: Box) -> tuple[int, ...]:
    rectangle = list(shape)
    rectangle[axes[0]], rectangle[axes[1]] = box.shape
    return tuple(rectangle)


def edges(cells: int, blocks: int) -> list[int]:
    """Return where blocks of an axis begin, and its end: as equal as whole cells allow."""
    return [cells * i // blocks for i in range(blocks + 1)]


def rectangles(owner: Ints, blocks: Shape, hosts: Sequence[str], shape: Shape) -> list[Held]:
    """Return each host's blocks as few rectangles of cells: runs of rows or of columns, merged."""
    rows, columns = edges(shape[0], blocks[0]), edges(shape[1], blocks[1])
    grid = owner.reshape(blocks)
    by_row = _merged_runs(grid)
    by_column = [Box(b.left, b.right, b.top, b.bottom) for b in _merged_runs(grid.T)]
    held = []
    for number, host in enumerate(hosts):
        ways = [[b for b in way if grid[b.top, b.left] == number] for way in (by_row, by_column)]
        for box in min(ways, key=len):
            cells = Box(rows[box.top], rows[box.bottom], columns[box.left], columns[box.right])
            held.append(Held(host, cells))
    return held


def _merged_runs(grid: Ints) -> list[Box]:
    """Return runs of one owner along the rows; equal ones below each other are one."""
    open_runs: dict[tuple[int, int, int], int] = {}
    boxes: list[Box] = []
    for row, owners in enumerate(grid):
        bounds = [0, *(np.flatnonzero(np.diff(owners)) + 1).tolist(), len(owners)]
        runs = {(int(owners[a]), a, b) for a, b in itertools.pairwise(bounds)}
        boxes += [
            Box(top, row, left, right)
            for (number, left, right), top in open_runs.items()
            if (number, left, right) not in runs
        ]
        open_runs = {run: open_runs.get(run, row) for run in sorted(runs)}
    boxes += [Box(top, len(grid), left, right) for (_, left, right), top in open_runs.items()]
    return sorted(boxes)


def covers(boxes: Sequence[Box], shape: Shape) -> bool:
    """Return whether these rectangles, none of which overlap, are the whole grid."""
    return sum(box.cells for box in boxes) == shape[0] * shape[1]
