"""The stages of the conjugate gradient method, for NumPy's arrays or CuPy's.

Subclasses say how many rows are computed at a time, so that vectors stay in a core's cache between
operations, and apply incomplete Cholesky factors.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from hetsched.errors import DataError
from hetsched.workload import Arrays, RowCache, Rows, StageKernel, Values
from hetsched.workload.streams import fill_uniform
from hetsched_workloads.granule_sums import GranuleSums
from hetsched_workloads.pcg.csr import check_positive, check_rows, diagonal
from hetsched_workloads.pcg.declaration import PARTS, Pcg, PcgParams
from hetsched_workloads.systems import sum_of

MAX_ASYMMETRY = {"float32": 1e-5, "float64": 1e-9}
"""Difference of u.Av and v.Au over the norm of A that rounding may cause, with room to spare."""

DOT_SIZE = 1 << 16
STAGES = (
    "begin",
    "start",
    "start_direction",
    "multiply",
    "measure",
    "advance",
    "direct",
    "result",
)


class PcgKernels:
    """Keeps the pointers of own rows from 0 on, 1 / diag(A), and room for pieces of vectors."""

    xp: Any = np
    piece_rows: int

    def __init__(self, p: PcgParams) -> None:
        self._p = p
        self._granule = Pcg().granule(p)
        self._piece = max(1, self.piece_rows // self._granule) * self._granule
        self._pointers: RowCache[Any] = RowCache()
        self._weights: RowCache[Any] = RowCache()
        self._scratch: Sequence[Any] = ()

    def stages(self) -> Mapping[str, StageKernel]:
        # Overflows and NaN are found in the results.
        return {name: np.errstate(all="ignore")(getattr(self, name)) for name in STAGES}

    def matrix(self, rows: Rows, inputs: Arrays) -> Any:
        """Return own rows of A, which `@` multiplies by a vector."""
        raise NotImplementedError

    def own(self, rows: Rows, inputs: Arrays) -> tuple[Any, Any, Any]:
        """Return values, columns and pointers of own rows as those of a matrix of its own."""
        data, columns, pointers = (inputs[part] for part in PARTS)
        own = self._pointers.get(rows.first, rows.stop, lambda: pointers - pointers[0])
        return data, columns, own

    def precondition(self, rows: Rows, inputs: Arrays, r: Any, z: Any) -> None:
        """Write the rows of M^-1 r to z, with incomplete Cholesky factors."""
        raise NotImplementedError

    def begin(
        self, rows: Rows, inputs: Arrays, outputs: Arrays, values: Values, partials: Arrays
    ) -> None:
        xp, b = self.xp, inputs["b"]
        values, columns, pointers = (inputs[part] for part in PARTS)
        check_rows(xp, rows, values, columns, pointers, self._p.nonzeros)
        check_positive(xp, rows, self._diagonal(rows, inputs))
        for name in ("b", "x0") if self._p.x0 else ("b",):
            bad = xp.flatnonzero(~xp.isfinite(inputs[name]))
            if len(bad):
                row = int(bad[0])
                value = float(inputs[name][row])
                raise DataError(f"{name}[{rows.first + row}] is {value}; {name} must be finite")
        start = inputs["x0"] if self._p.x0 else 0
        outputs["iterate"][...] = start
        outputs["direction"][...] = start
        self._sum(partials["bb"], rows, b, b)
        partials["largest"][...] = float(xp.abs(b).max())
        self._compare_sides(rows, inputs, partials)

    def _compare_sides(self, rows: Rows, inputs: Arrays, partials: Arrays) -> None:
        """Compute u.Av - v.Au with random vectors, 0 if A is symmetric, and A's norm."""
        xp, dtype = self.xp, inputs["A.data"].dtype
        vectors = []
        for name in ("u", "v"):
            vector = np.empty(rows.load, dtype)
            fill_uniform(0, name, 0, vector)
            vector -= dtype.type(0.5)
            vectors.append(xp.asarray(vector))
        product = xp.empty(rows.count, dtype)
        difference = 0.0
        for sign, left, right in ((1, *vectors), (-1, *vectors[::-1])):
            self._multiply(rows, inputs, right, product)
            difference += sign * _dot(left[rows.first : rows.stop], product)
        partials["asymmetry"][...] = difference
        partials["norm"][...] = _norm(inputs["A.data"])

    def start(
        self, rows: Rows, inputs: Arrays, outputs: Arrays, values: Values, partials: Arrays
    ) -> None:
        asymmetry = abs(float(values.now["asymmetry"])) / float(values.now["norm"])
        if not asymmetry <= MAX_ASYMMETRY[self._p.dtype]:
            raise DataError(
                f"A is not symmetric: u.Av and v.Au differ by {asymmetry:.2g} of A's norm for"
                " random u and v"
            )
        r = outputs["residual"]
        self._multiply(rows, inputs, inputs["direction"], outputs["product"])
        self.xp.subtract(inputs["b"], outputs["product"], out=r)
        if self._p.preconditioner == "cholesky":
            self._sum(partials["rr"], rows, r, r)
            self._precondition(rows, inputs, r, outputs["preconditioned"], partials["rz"])
        else:
            self._add_up(rows, inputs, (r[piece] for piece in self._pieces(rows)), partials)

    def start_direction(
        self, rows: Rows, inputs: Arrays, outputs: Arrays, values: Values, partials: Arrays
    ) -> None:
        if self._p.preconditioner == "cholesky":
            outputs["direction"][...] = inputs["preconditioned"]
            return
        for piece in self._pieces(rows):
            z = self._weighted(rows, inputs, piece, inputs["residual"][piece])
            outputs["direction"][piece] = z

    def multiply(
        self, rows: Rows, inputs: Arrays, outputs: Arrays, values: Values, partials: Arrays
    ) -> None:
        p, q = inputs["direction"], outputs["product"]
        self._multiply(rows, inputs, p, q)
        self._sum(partials["pq"], rows, p[rows.first : rows.stop], q)

    def measure(
        self, rows: Rows, inputs: Arrays, outputs: Arrays, values: Values, partials: Arrays
    ) -> None:
        alpha = step_length(values)
        residuals = (
            self._residual(inputs, piece, alpha, self._room(0, rows, piece))
            for piece in self._pieces(rows)
        )
        self._add_up(rows, inputs, residuals, partials)

    def advance(
        self, rows: Rows, inputs: Arrays, outputs: Arrays, values: Values, partials: Arrays
    ) -> None:
        alpha = step_length(values)
        squares = GranuleSums(self.xp, partials["rr"], self._granule)
        for piece in self._pieces(rows):
            r = self._residual(inputs, piece, alpha, outputs["residual"][piece])
            squares.add_dot(rows.first + piece.start, r, r)
        self._precondition(
            rows, inputs, outputs["residual"], outputs["preconditioned"], partials["rz"]
        )

    def direct(
        self, rows: Rows, inputs: Arrays, outputs: Arrays, values: Values, partials: Arrays
    ) -> None:
        xp, alpha, beta = self.xp, step_length(values), direction_weight(values)
        direction = inputs["direction"][rows.first : rows.stop]
        for piece in self._pieces(rows):
            p, x, new = direction[piece], outputs["iterate"][piece], outputs["direction"][piece]
            xp.multiply(p, alpha, out=x)
            xp.add(x, inputs["iterate"][piece], out=x)
            xp.multiply(p, beta, out=new)
            if self._p.preconditioner == "cholesky":
                z = inputs["preconditioned"][piece]
            else:
                r = self._residual(inputs, piece, alpha, outputs["residual"][piece])
                z = self._weighted(rows, inputs, piece, r)
            xp.add(new, z, out=new)

    def result(
        self, rows: Rows, inputs: Arrays, outputs: Arrays, values: Values, partials: Arrays
    ) -> None:
        outputs["x"][...] = inputs["iterate"]

    def _multiply(self, rows: Rows, inputs: Arrays, x: Any, y: Any) -> None:
        """Write the rows of A x to y."""
        y[...] = self.matrix(rows, inputs) @ x

    def _residual(self, inputs: Arrays, piece: slice, alpha: float, out: Any) -> Any:
        """Return r - alpha q, in `out`."""
        self.xp.multiply(inputs["product"][piece], -alpha, out=out)
        return self.xp.add(out, inputs["residual"][piece], out=out)

    def _precondition(self, rows: Rows, inputs: Arrays, r: Any, z: Any, partial: Any) -> None:
        """Write M^-1 r to z, by incomplete factors, and the sums of r.z."""
        sums = GranuleSums(self.xp, partial, self._granule)
        self.precondition(rows, inputs, r, z)
        for piece in self._pieces(rows):
            sums.add_dot(rows.first + piece.start, r[piece], z[piece])

    def _add_up(
        self, rows: Rows, inputs: Arrays, residuals: Iterable[Any], partials: Arrays
    ) -> None:
        """Write the sums of r.r and r.z, of each piece's r."""
        squares = GranuleSums(self.xp, partials["rr"], self._granule)
        weighted = GranuleSums(self.xp, partials["rz"], self._granule)
        for piece, r in zip(self._pieces(rows), residuals, strict=True):
            first = rows.first + piece.start
            squares.add_dot(first, r, r)
            weighted.add_dot(first, r, self._weighted(rows, inputs, piece, r))

    def _weighted(self, rows: Rows, inputs: Arrays, piece: slice, r: Any) -> Any:
        weights = self._weight(rows, inputs)[piece]
        return self.xp.multiply(r, weights, out=self._room(1, rows, piece))

    def _room(self, number: int, rows: Rows, piece: slice) -> Any:
        """Return room for values of a piece: that of number 0 or 1."""
        if not self._scratch or len(self._scratch[0]) < piece.stop - piece.start:
            size = min(self._piece, rows.count)
            self._scratch = [self.xp.empty(size, self._p.dtype) for _ in range(2)]
        return self._scratch[number][: piece.stop - piece.start]

    def _weight(self, rows: Rows, inputs: Arrays) -> Any:
        """Return 1 / diag(A) of own rows; ones without a preconditioner."""

        def weights() -> Any:
            if self._p.preconditioner == "none":
                return self.xp.ones(rows.count, self._p.dtype)
            return 1 / self._diagonal(rows, inputs)

        return self._weights.get(rows.first, rows.stop, weights)

    def _diagonal(self, rows: Rows, inputs: Arrays) -> Any:
        return diagonal(self.xp, rows, *(inputs[part] for part in PARTS))

    def _sum(self, partial: Any, rows: Rows, a: Any, b: Any) -> None:
        GranuleSums(self.xp, partial, self._granule).add_dot(rows.first, a, b)

    def _pieces(self, rows: Rows) -> Iterator[slice]:
        for first in range(0, rows.count, self._piece):
            yield slice(first, min(first + self._piece, rows.count))


def step_length(values: Values) -> float:
    """Return alpha; 0 if the curvature isn't positive, at which `Pcg.converged` ends the job."""
    curvature = sum_of(values.now, "pq")
    return sum_of(values.before, "rz") / curvature if curvature > 0 else 0.0


def direction_weight(values: Values) -> float:
    before = sum_of(values.before, "rz")
    return sum_of(values.now, "rz") / before if before else 0.0


def _dot(a: Any, b: Any) -> float:
    """Return a.b in double precision, with small temporary arrays."""
    pieces = (slice(first, first + DOT_SIZE) for first in range(0, len(a), DOT_SIZE))
    return sum(float((a[piece].astype("float64") * b[piece]).sum()) for piece in pieces)


def _norm(a: Any) -> float:
    """Return the root of the sum of squares, which don't overflow, or underflow, all of them."""
    largest = max(float(a.max()), -float(a.min()))
    pieces = (a[first : first + DOT_SIZE] for first in range(0, len(a), DOT_SIZE))
    scaled = (piece.astype("float64") / largest for piece in pieces)
    return largest * math.sqrt(sum(float((piece * piece).sum()) for piece in scaled))
