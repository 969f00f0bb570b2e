"""Where populations bounce back: links between fluid cells and what is solid.

A population that would come from a wall or a solid cell comes from its own cell instead, from the
opposite direction; at a moving wall it gains 6 w c.u (Ladd, J. Fluid Mech. 271, 1994). Populations
of solid cells stay in their cell.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hetsched.workload import Rows
from hetsched_lbm import LbmParams
from hetsched_lbm.lattice import DIRECTIONS, WEIGHTS

ROWS_AT_ONCE = 64
"""Rows whose links are found at once: they take 32 bytes each then. Arbitrary."""


@dataclass(frozen=True)
class Links:
    """Populations that bounce back, sorted by row and block of columns; 5 bytes each.

    Attributes
    ----------
    starts : (rows * blocks + 1,) int64
        Where those of each block begin.
    columns : (count,) int32
    codes : (count,) uint8
        The direction; below the lid, plus 9.
    """

    starts: np.ndarray
    columns: np.ndarray
    codes: np.ndarray


def lid_gains(p: LbmParams) -> np.ndarray:
    """Return what a population of each direction gains at the lid, (9,)."""
    along, _ = np.array(DIRECTIONS).T
    return np.asarray(6 * p.speed * np.array(WEIGHTS) * along)


def links(p: LbmParams, mask: np.ndarray | None, rows: Rows, width: int) -> Links:
    """Return the links of some rows, in blocks of `width` columns."""
    blocks = -(-p.cols // width)
    counts = [np.zeros(1, np.int64)]
    columns, codes = [np.empty(0, np.int32)], [np.empty(0, np.uint8)]
    for first in range(rows.first, rows.stop, ROWS_AT_ONCE):
        piece = Rows(first, min(first + ROWS_AT_ONCE, rows.stop), rows.load)
        row, direction, column, is_below_lid = _found(p, mask, piece)
        block = row * blocks + column // width
        order = np.argsort(block, kind="stable")
        counts.append(np.bincount(block, minlength=piece.count * blocks))
        columns.append(column[order].astype(np.int32))
        codes.append((direction + 9 * is_below_lid)[order].astype(np.uint8))
    return Links(np.cumsum(np.concatenate(counts)), np.concatenate(columns), np.concatenate(codes))


def _found(p: LbmParams, mask: np.ndarray | None, rows: Rows) -> tuple[np.ndarray, ...]:
    """Return rows (of the given ones), directions and columns, and whether the lid is above."""
    solid = _surroundings(p, mask, rows)
    own = solid[1:-1, 1:-1]
    blocked = np.zeros((rows.count, 9, p.cols), bool)
    for number, (x, y) in enumerate(DIRECTIONS[1:], 1):
        source = solid[1 - y : 1 - y + rows.count, 1 - x : 1 - x + p.cols]
        blocked[:, number] = source | own
    row, direction, column = np.nonzero(blocked)
    _, across = np.array(DIRECTIONS).T
    is_below_lid = (rows.first + row == p.rows - 1) & (across[direction] < 0)
    is_below_lid &= (p.flow == "cavity") & ~own[row, column]
    return row, direction, column, is_below_lid


def _surroundings(p: LbmParams, mask: np.ndarray | None, rows: Rows) -> np.ndarray:
    """Return whether cells are solid, with one cell more on each side."""
    solid = np.zeros((rows.count + 2, p.cols + 2), bool)
    if mask is not None:
        first, stop = max(rows.first - 1, 0), min(rows.stop + 1, p.rows)
        start = first - (rows.first - 1)
        solid[start : start + stop - first, 1:-1] = mask[first:stop] != 0
    if rows.is_first:
        solid[0] = True
    if rows.is_last:
        solid[-1] = True
    if p.flow == "cavity":
        solid[:, 0] = solid[:, -1] = True
    else:
        solid[:, 0], solid[:, -1] = solid[:, -2], solid[:, 1]
    return solid
