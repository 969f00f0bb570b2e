"""Test data of `pcg`, and the check of every row of the result.

Generated: the Laplacian on a grid with zeros around it (2 on the diagonal per axis, -1 for each
neighbour), and a random right side.
"""

from __future__ import annotations

import math

import numpy as np

from hetsched.workload import Arrays, Rows
from hetsched.workload.streams import fill_uniform
from hetsched_workloads.declarations import parse
from hetsched_workloads.pcg import FORMS, PcgParams
from hetsched_workloads.pcg.kernels import CHECKED_ROWS, entry_rows
from hetsched_workloads.systems import row_errors


def generate(p: PcgParams, seed: int, array: str, first: int, out: np.ndarray) -> None:
    """Fill `out`: a part of the matrix, or a vector of numbers from -1/2 to 1/2."""
    if not array.startswith("A."):
        fill_uniform(seed, array, first, out)
        out -= out.dtype.type(0.5)
        return
    part = array.removeprefix("A.")
    size = 0
    if part == "indptr":
        out[0] = 0
    for start in range(0, p.n, CHECKED_ROWS):
        rows = np.arange(start, min(start + CHECKED_ROWS, p.n))
        columns, exists = _stencil(parse(p.grid, FORMS), rows)
        if part == "indptr":
            out[start + 1 : start + 1 + len(rows)] = size + np.cumsum(exists.sum(axis=1))
            size = int(out[start + len(rows)])
            continue
        content = columns
        if part == "data":
            content = np.where(columns == rows[:, None], 2 * len(parse(p.grid, FORMS)), -1)
        content = content[exists]
        out[size : size + len(content)] = content
        size += len(content)


def _stencil(axes: tuple[int, ...], rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the columns of each row, in order, and which of them exist."""
    strides = [math.prod(axes[axis + 1 :]) for axis in range(len(axes))]
    places = [rows // stride % size for stride, size in zip(strides, axes, strict=True)]
    below = [(rows - s, x > 0) for s, x in zip(strides, places, strict=True)]
    above = [
        (rows + stride, x < size - 1)
        for stride, x, size in zip(strides[::-1], places[::-1], axes[::-1], strict=True)
    ]
    entries = [*below, (rows, np.ones(len(rows), bool)), *above]
    columns = np.stack([column for column, _ in entries], axis=1)
    return columns, np.stack([exists for _, exists in entries], axis=1)


def errors(p: PcgParams, inputs: Arrays, outputs: Arrays, rows: Rows) -> np.ndarray:
    b = inputs["b"]

    def products(block: slice, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        pointers = inputs["A.indptr"][block.start : block.stop + 1]
        part = slice(int(pointers[0]), int(pointers[-1]))
        terms = inputs["A.data"][part].astype(np.float64) * x[inputs["A.indices"][part]]
        row_of, count = entry_rows(np, pointers), block.stop - block.start
        return np.bincount(row_of, terms, count), np.bincount(row_of, np.abs(terms), count)

    allowed = p.tolerance * float(np.linalg.norm(b.astype(np.float64)))
    return row_errors(b, outputs["x"], rows, CHECKED_ROWS, products, allowed)
