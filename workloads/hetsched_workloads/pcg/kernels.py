"""The stages of the conjugate gradient method: on a core, and what a GPU shares.

SciPy's product of own rows, NumPy's vectors: for matrices in a core's caches, and where numba
isn't installed. `csr_matvec` is SciPy's own loop, which adds to its result and releases the GIL.
`csr_array @ x` calls it, too, but allocates its result, for which an iteration takes 10 % longer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import scipy.sparse

from hetsched.errors import DataError
from hetsched.workload import (
    Arrays,
    KernelContext,
    RowCache,
    Rows,
    StageCall,
    StageKernel,
    Values,
)
from hetsched.workload.streams import fill_uniform
from hetsched_workloads.declarations import parse
from hetsched_workloads.pcg import FORMS, PARTS, Pcg, PcgParams
from hetsched_workloads.systems import row_errors, sum_of
from hetsched_workloads.vectors import add_dots, first_true

try:
    from scipy.sparse._sparsetools import csr_matvec
except ImportError:  # not public: a version of SciPy may lack it
    csr_matvec = None

MAX_ASYMMETRY = {"float32": 1e-5, "float64": 1e-9}
"""Difference of u.Av and v.Au over the norm of A that rounding may cause, with room to spare."""
CHECKED_ROWS = 1 << 14
"""Rows checked at a time, so that temporary arrays stay small."""
NORM_SIZE = 1 << 16
"""Elements whose squares are summed at once, so that temporary arrays stay small."""


def make(p: PcgParams, load: int, context: KernelContext) -> Mapping[str, StageKernel]:
    return PcgKernels(p).stages()


class PcgKernels:
    """Keeps the pointers of own rows from 0 on, and what `precondition` needs of them."""

    xp: Any = np
    to_host: Callable[[Any], np.ndarray] = staticmethod(np.asarray)
    piece_rows = 1 << 16
    """Rows computed at a time, so that vectors stay in a core's cache between operations. Of 10^6
    rows 2^14 take 20 % longer, 2^12 70 %."""

    def __init__(self, p: PcgParams) -> None:
        self._p = p
        self._granule = Pcg().granule(p)
        self._piece = max(1, self.piece_rows // self._granule) * self._granule
        self._pointers: RowCache[Any] = RowCache()
        self._inverses: RowCache[Any] = RowCache()
        if p.preconditioner == "cholesky":
            from hetsched_workloads.pcg import cholesky  # needs numba

            cholesky.compile_for(p.dtype, p.index_dtype)

    def stages(self) -> Mapping[str, StageKernel]:
        return {
            "begin": self.begin,
            "start": self.start,
            "start_direction": self.start_direction,
            "multiply": self.multiply,
            "advance": self.advance,
            "direct": self.direct,
            "result": self.result,
        }

    def own(self, call: StageCall) -> tuple[Any, Any, Any]:
        """Return values, columns and pointers of own rows as those of a matrix of its own."""
        rows, (data, columns, pointers) = call.rows, (call.inputs[part] for part in PARTS)
        own = self._pointers.get(rows.first, rows.stop, lambda: pointers - pointers[0])
        return data, columns, own

    def begin(self, call: StageCall) -> None:
        xp, rows, b = self.xp, call.rows, call.inputs["b"]
        data, columns, pointers = (call.inputs[part] for part in PARTS)
        check_rows(xp, rows, data, columns, pointers, self._p.nonzeros)
        check_positive(xp, rows, diagonal(xp, rows, data, columns, pointers))
        for name in ("b", "x0") if self._p.x0 else ("b",):
            vector = call.inputs[name]
            if (row := first_true(xp, ~xp.isfinite(vector))) is not None:
                raise DataError(
                    f"{name}[{rows.first + row}] is {float(vector[row])}; {name} must be finite"
                )
        start = call.inputs["x0"] if self._p.x0 else 0
        call.outputs["iterate"][...] = call.outputs["direction"][...] = start
        add_dots(xp, call.partials["bb"], self._granule, rows.first, b, b)
        call.partials["largest"][...] = float(xp.abs(b).max())
        self._compare_sides(call)

    def _compare_sides(self, call: StageCall) -> None:
        """Compute u.Av - v.Au with random vectors, 0 if A is symmetric, and A's norm."""
        xp, rows, values = self.xp, call.rows, call.inputs["A.data"]
        vectors = []
        for name in ("u", "v"):
            vector = np.empty(rows.load, values.dtype)
            fill_uniform(0, name, 0, vector)
            vectors.append(xp.asarray(vector - vector.dtype.type(0.5)))
        product = xp.empty(rows.count, values.dtype)
        difference = 0.0
        for sign, left, right in ((1, *vectors), (-1, *vectors[::-1])):
            self.write_product(call, right, product)
            product *= left[rows.first : rows.stop]
            difference += sign * float(product.sum(dtype="float64"))
        call.partials["asymmetry"][...] = difference
        call.partials["norm"][...] = _norm(values)

    def start(self, call: StageCall) -> None:
        asymmetry = abs(float(call.values.now["asymmetry"])) / float(call.values.now["norm"])
        if not asymmetry <= MAX_ASYMMETRY[self._p.dtype]:
            raise DataError(
                f"A is not symmetric: u.Av and v.Au differ by {asymmetry:.2g} of A's norm for"
                " random u and v"
            )
        self.write_product(call, call.inputs["direction"], call.outputs["product"])
        for piece in self._pieces(call.rows):
            r = call.outputs["residual"][piece]
            self.xp.subtract(call.inputs["b"][piece], call.outputs["product"][piece], out=r)
            self._precondition(call, piece)

    def start_direction(self, call: StageCall) -> None:
        call.outputs["direction"][...] = call.inputs["preconditioned"]

    def multiply(self, call: StageCall) -> None:
        rows, p, q = call.rows, call.inputs["direction"], call.outputs["product"]
        self.write_product(call, p, q)
        own = p[rows.first : rows.stop]
        add_dots(self.xp, call.partials["pq"], self._granule, rows.first, own, q)

    def advance(self, call: StageCall) -> None:
        alpha = step_length(call.values)
        for piece in self._pieces(call.rows):
            r = call.outputs["residual"][piece]
            self.xp.multiply(call.inputs["product"][piece], -alpha, out=r)
            self.xp.add(r, call.inputs["residual"][piece], out=r)
            self._precondition(call, piece)

    def direct(self, call: StageCall) -> None:
        xp, inputs, outputs = self.xp, call.inputs, call.outputs
        alpha, beta = step_length(call.values), direction_weight(call.values)
        direction = inputs["direction"][call.rows.first : call.rows.stop]
        for piece in self._pieces(call.rows):
            p, x, new = direction[piece], outputs["iterate"][piece], outputs["direction"][piece]
            xp.multiply(p, alpha, out=x)
            xp.add(x, inputs["iterate"][piece], out=x)
            xp.multiply(p, beta, out=new)
            xp.add(new, inputs["preconditioned"][piece], out=new)

    def result(self, call: StageCall) -> None:
        x = call.inputs["iterate"]
        if (row := first_true(self.xp, ~self.xp.isfinite(x))) is not None:
            raise DataError(
                f"x[{call.rows.first + row}] is too large for {self._p.dtype}: scale A or b"
            )
        call.outputs["x"][...] = x

    def write_product(self, call: StageCall, x: Any, y: Any) -> None:
        rows, (data, columns, pointers) = call.rows, self.own(call)
        if csr_matvec is None:
            matrix = scipy.sparse.csr_array((data, columns, pointers), (rows.count, rows.load))
            y[...] = matrix @ x
            return
        y[...] = 0
        csr_matvec(rows.count, rows.load, pointers, columns, data, x, y)

    def _precondition(self, call: StageCall, piece: slice) -> None:
        """Write z = M^-1 r of a piece, and the sums of r.r and r.z."""
        first, stop = call.rows.first + piece.start, call.rows.first + piece.stop
        r, z = call.outputs["residual"][piece], call.outputs["preconditioned"][piece]
        if self._p.preconditioner == "cholesky":
            # Kept for pieces of the same rows as before, however many rows come or go.
            solve = self._inverses.get(
                first, stop, lambda: self.solver(self._factors(call, piece, first))
            )
            solve(r, z)
        else:
            self.xp.multiply(r, self.weights(call)[piece], out=z)
        add_dots(self.xp, call.partials["rr"], self._granule, first, r, r)
        add_dots(self.xp, call.partials["rz"], self._granule, first, r, z)

    def _factors(self, call: StageCall, piece: slice, first: int) -> Any:
        from hetsched_workloads.pcg.cholesky import RowFactors  # needs numba

        data, columns, pointers = self.own(call)
        own = self.to_host(pointers[piece.start : piece.stop + 1])
        part = slice(int(own[0]), int(own[-1]))
        matrix = self.to_host(columns[part]), self.to_host(data[part])
        return RowFactors(own - own[0], *matrix, first, self._granule)

    def solver(self, factors: Any) -> Any:
        """Return solve(r, z), which writes z = M^-1 r by incomplete factors."""
        return factors.solve

    def weights(self, call: StageCall) -> Any:
        """Return 1 / diag(A) of own rows; ones without a preconditioner."""
        rows = call.rows

        def inverse() -> Any:
            if self._p.preconditioner == "none":
                return self.xp.ones(rows.count, self._p.dtype)
            return 1 / diagonal(self.xp, rows, *(call.inputs[part] for part in PARTS))

        return self._inverses.get(rows.first, rows.stop, inverse)

    def _pieces(self, rows: Rows) -> Iterator[slice]:
        """Yield places of own rows; but for the ends, of the same rows whatever the split."""
        for start in range(rows.first // self._piece * self._piece, rows.stop, self._piece):
            first, stop = max(start, rows.first), min(start + self._piece, rows.stop)
            yield slice(first - rows.first, stop - rows.first)


def step_length(values: Values) -> float:
    """Return alpha; 0 if the curvature isn't positive, at which `Pcg.converged` ends the job."""
    curvature = sum_of(values.now, "pq")
    return sum_of(values.before, "rz") / curvature if curvature > 0 else 0.0


def direction_weight(values: Values) -> float:
    before = sum_of(values.before, "rz")
    return sum_of(values.now, "rz") / before if before else 0.0


def _norm(a: Any) -> float:
    """Return the root of the sum of squares, which don't overflow, or underflow, all of them."""
    largest = max(float(a.max()), -float(a.min()))
    pieces = (a[first : first + NORM_SIZE] for first in range(0, len(a), NORM_SIZE))
    scaled = (piece.astype("float64") / largest for piece in pieces)
    return largest * math.sqrt(sum(float((piece * piece).sum()) for piece in scaled))


# ---- rows of A, whose pointers count from the matrix's first entry; checked before they are used


def entry_rows(xp: Any, pointers: Any) -> Any:
    """Return the row of each nonzero; the first row is 0."""
    if xp is np:
        rows = np.arange(len(pointers) - 1, dtype=pointers.dtype)
        return np.repeat(rows, np.diff(pointers))
    nonzeros = int(pointers[-1] - pointers[0])
    return xp.searchsorted(pointers - pointers[0], xp.arange(nonzeros), side="right") - 1


def diagonal(xp: Any, rows: Rows, values: Any, columns: Any, pointers: Any) -> Any:
    """Return the diagonal elements of own rows, 0 where there is none."""
    elements = xp.zeros(rows.count, values.dtype)
    for row_of, part in _checked_pieces(xp, rows, pointers):
        is_diagonal = row_of == columns[part]
        elements[row_of[is_diagonal] - rows.first] = values[part][is_diagonal]
    return elements


def check_rows(
    xp: Any, rows: Rows, values: Any, columns: Any, pointers: Any, nonzeros: int
) -> None:
    """Raise DataError unless pointers, columns and values of own rows are those of a matrix."""
    if (row := first_true(xp, pointers[1:] < pointers[:-1])) is not None:
        raise DataError(f"A.indptr falls after row {rows.first + row}; it must rise")
    first, last = int(pointers[0]), int(pointers[-1])
    if first < 0 or last > nonzeros or (rows.is_first and first != 0):
        raise DataError(f"A.indptr reaches from {first} to {last}, A has {nonzeros} nonzeros")
    if rows.is_last and last != nonzeros:
        raise DataError(f"A.indptr ends with {last}, A has {nonzeros} nonzeros")
    for row_of, part in _checked_pieces(xp, rows, pointers):
        _check_entries(xp, row_of, columns[part], values[part], rows.load)


def check_positive(xp: Any, rows: Rows, elements: Any) -> None:
    """Raise DataError unless all of the diagonal elements of own rows are positive."""
    if (index := first_true(xp, ~(elements > 0))) is not None:
        row = rows.first + index
        raise DataError(
            f"A[{row}, {row}] is {float(elements[index]):g}: a positive definite matrix has a"
            " positive diagonal"
        )


def _checked_pieces(xp: Any, rows: Rows, pointers: Any) -> Iterator[tuple[Any, slice]]:
    """Yield (row of each nonzero, place of the nonzeros) of some of the rows at a time."""
    start = int(pointers[0])
    for first in range(0, rows.count, CHECKED_ROWS):
        own = pointers[first : first + CHECKED_ROWS + 1]
        part = slice(int(own[0]) - start, int(own[-1]) - start)
        yield entry_rows(xp, own) + rows.first + first, part


def _check_entries(xp: Any, row_of: Any, columns: Any, values: Any, n: int) -> None:
    if (i := first_true(xp, (columns < 0) | (columns >= n))) is not None:
        column = int(columns[i])
        raise DataError(f"row {int(row_of[i])} of A has column {column}, out of 0 to {n - 1}")
    wrong = (columns[1:] <= columns[:-1]) & (row_of[1:] == row_of[:-1])
    if (i := first_true(xp, wrong)) is not None:
        column, following = int(columns[i]), int(columns[i + 1])
        problem = f"repeats column {column}" if following == column else "is unsorted"
        raise DataError(
            f"row {int(row_of[i])} of A {problem}; use sum_duplicates() and sort_indices()"
        )
    if (i := first_true(xp, ~xp.isfinite(values))) is not None:
        place = f"A[{int(row_of[i])}, {int(columns[i])}]"
        raise DataError(f"{place} is {float(values[i])}; A must be finite")


# ---- test data, and the check of every row


def generate(p: PcgParams, seed: int, array: str, first: int, out: np.ndarray) -> None:
    """Fill `out`: a part of the matrix, or a vector of numbers from -1/2 to 1/2.

    The matrix: the Laplacian on a grid with zeros around it, 2 on the diagonal per axis, -1 for
    each neighbour.
    """
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
