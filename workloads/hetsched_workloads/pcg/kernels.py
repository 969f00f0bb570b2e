"""The stages of the conjugate gradient method, for NumPy's arrays or CuPy's.

What differs between the two is behind `Backend`: products with rows of A, preconditioners, and how
many rows are computed at a time, so that vectors stay in a core's cache between operations.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import numpy as np

from hetsched.errors import DataError
from hetsched.workload import Arrays, Rows, StageKernel, Values
from hetsched_workloads.granule_sums import GranuleSums
from hetsched_workloads.pcg.csr import check_positive, check_rows, diagonal
from hetsched_workloads.pcg.declaration import Pcg, PcgParams
from hetsched_workloads.pcg.inference import PARTS
from hetsched_workloads.row_cache import RowCache
from hetsched_workloads.streams import fill_uniform
from hetsched_workloads.systems import sum_of

MAX_ASYMMETRY = {"float32": 1e-5, "float64": 1e-9}
"""Difference of u.Av and v.Au over the norm of A that rounding may cause, with room to spare."""

DOT_SIZE = 1 << 16


class Backend(Protocol):
    """What computes with own rows."""

    @property
    def xp(self) -> Any:
        """The array module."""

    @property
    def piece_rows(self) -> int:
        """Rows of vectors to compute at a time."""

    def multiply(self, rows: Rows, inputs: Arrays, x: Any, y: Any) -> None:
        """Write the rows of A x to y."""

    def precondition(self, rows: Rows, inputs: Arrays, r: Any, z: Any) -> None:
        """Write the rows of M^-1 r to z, with incomplete Cholesky factors."""


def stage_kernels(p: PcgParams, backend: Backend) -> Mapping[str, StageKernel]:
    """Return the kernels by stage."""
    kernels = _PcgKernels(p, backend)
    names = ("begin", "start", "start_direction", "multiply", "advance", "direct", "result")
    # Overflows and NaN are found in the results.
    return {name: np.errstate(all="ignore")(getattr(kernels, name)) for name in names}


class _PcgKernels:
    """Keeps 1 / diag(A) of own rows."""

    def __init__(self, p: PcgParams, backend: Backend) -> None:
        self._p = p
        self._backend = backend
        self._xp = backend.xp
        self._granule = Pcg().granule(p)
        self._piece = max(1, backend.piece_rows // self._granule) * self._granule
        self._weights: RowCache[Any] = RowCache()

    def begin(
        self, rows: Rows, inputs: Arrays, outputs: Arrays, values: Values, partials: Arrays
    ) -> None:
        xp, b = self._xp, inputs["b"]
        check_rows(xp, rows, *(inputs[part] for part in PARTS))
        check_positive(xp, rows, 1 / self._weight(rows, inputs))
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
        if b.any() and not partials["bb"].any():
            raise DataError("b is too small: its squares underflow; scale the system")
        self._compare_sides(rows, inputs, partials)

    def _compare_sides(self, rows: Rows, inputs: Arrays, partials: Arrays) -> None:
        """Compute u.Av - v.Au with random vectors, 0 if A is symmetric, and A's squares."""
        xp, dtype = self._xp, inputs["A.data"].dtype
        vectors = []
        for name in ("u", "v"):
            vector = np.empty(rows.load, dtype)
            fill_uniform(0, name, 0, vector)
            vector -= dtype.type(0.5)
            vectors.append(xp.asarray(vector))
        product = xp.empty(rows.count, dtype)
        difference = 0.0
        for sign, left, right in ((1, *vectors), (-1, *vectors[::-1])):
            self._backend.multiply(rows, inputs, right, product)
            difference += sign * _dot(left[rows.first : rows.stop], product)
        pointers = inputs["A.indptr"]
        data = inputs["A.data"][int(pointers[rows.first]) : int(pointers[rows.stop])]
        partials["asymmetry"][...] = difference
        partials["squares"][...] = _dot(data, data)

    def start(
        self, rows: Rows, inputs: Arrays, outputs: Arrays, values: Values, partials: Arrays
    ) -> None:
        norm = math.sqrt(float(values.now["squares"]))
        asymmetry = abs(float(values.now["asymmetry"])) / norm
        if not asymmetry <= MAX_ASYMMETRY[self._p.dtype]:
            raise DataError(
                f"A is not symmetric: u.Av and v.Au differ by {asymmetry:.2g} of A's norm for"
                " random u and v"
            )
        r = outputs["residual"]
        self._backend.multiply(rows, inputs, inputs["direction"], outputs["product"])
        self._xp.subtract(inputs["b"], outputs["product"], out=r)
        self._sum(partials["rr"], rows, r, r)
        self._precondition(rows, inputs, r, outputs["preconditioned"], partials["rz"])

    def start_direction(
        self, rows: Rows, inputs: Arrays, outputs: Arrays, values: Values, partials: Arrays
    ) -> None:
        outputs["direction"][...] = inputs["preconditioned"]

    def multiply(
        self, rows: Rows, inputs: Arrays, outputs: Arrays, values: Values, partials: Arrays
    ) -> None:
        p, q = inputs["direction"], outputs["product"]
        self._backend.multiply(rows, inputs, p, q)
        self._sum(partials["pq"], rows, p[rows.first : rows.stop], q)

    def advance(
        self, rows: Rows, inputs: Arrays, outputs: Arrays, values: Values, partials: Arrays
    ) -> None:
        xp, alpha = self._xp, _step_length(values)
        squares = GranuleSums(xp, partials["rr"], self._granule)
        for piece in self._pieces(rows):
            r = outputs["residual"][piece]
            xp.multiply(inputs["product"][piece], -alpha, out=r)
            xp.add(r, inputs["residual"][piece], out=r)
            squares.add_dot(rows.first + piece.start, r, r)
        self._precondition(
            rows, inputs, outputs["residual"], outputs["preconditioned"], partials["rz"]
        )

    def direct(
        self, rows: Rows, inputs: Arrays, outputs: Arrays, values: Values, partials: Arrays
    ) -> None:
        xp, alpha = self._xp, _step_length(values)
        before = sum_of(values.before, "rz")
        beta = sum_of(values.now, "rz") / before if before else 0.0
        direction = inputs["direction"][rows.first : rows.stop]
        for piece in self._pieces(rows):
            p, x, new = direction[piece], outputs["iterate"][piece], outputs["direction"][piece]
            xp.multiply(p, alpha, out=x)
            xp.add(x, inputs["iterate"][piece], out=x)
            xp.multiply(p, beta, out=new)
            xp.add(new, inputs["preconditioned"][piece], out=new)

    def result(
        self, rows: Rows, inputs: Arrays, outputs: Arrays, values: Values, partials: Arrays
    ) -> None:
        outputs["x"][...] = inputs["iterate"]

    def _precondition(self, rows: Rows, inputs: Arrays, r: Any, z: Any, partial: Any) -> None:
        """Write M^-1 r to z, and the sums of r.z."""
        sums = GranuleSums(self._xp, partial, self._granule)
        if self._p.preconditioner == "cholesky":
            self._backend.precondition(rows, inputs, r, z)
        for piece in self._pieces(rows):
            if self._p.preconditioner == "none":
                z[piece] = r[piece]
            elif self._p.preconditioner == "diagonal":
                self._xp.multiply(r[piece], self._weight(rows, inputs)[piece], out=z[piece])
            sums.add_dot(rows.first + piece.start, r[piece], z[piece])

    def _weight(self, rows: Rows, inputs: Arrays) -> Any:
        return self._weights.get(
            rows.first,
            rows.stop,
            lambda: 1 / diagonal(self._xp, rows, *(inputs[part] for part in PARTS)),
        )

    def _sum(self, partial: Any, rows: Rows, a: Any, b: Any) -> None:
        GranuleSums(self._xp, partial, self._granule).add_dot(rows.first, a, b)

    def _pieces(self, rows: Rows) -> Iterator[slice]:
        for first in range(0, rows.count, self._piece):
            yield slice(first, min(first + self._piece, rows.count))


def _step_length(values: Values) -> float:
    """Return alpha; 0 if the curvature isn't positive, at which `Pcg.converged` ends the job."""
    curvature = sum_of(values.now, "pq")
    return sum_of(values.before, "rz") / curvature if curvature > 0 else 0.0


def _dot(a: Any, b: Any) -> float:
    """Return a.b in double precision, with small temporary arrays."""
    pieces = (slice(first, first + DOT_SIZE) for first in range(0, len(a), DOT_SIZE))
    return sum(float((a[piece].astype("float64") * b[piece]).sum()) for piece in pieces)
