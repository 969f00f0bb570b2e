"""A small iterative workload on a sparse matrix: Jacobi's method, without any speed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import scipy.sparse

from hetsched.workload import (
    Arrays,
    ArraySpec,
    Iterative,
    KernelContext,
    Reduction,
    Rows,
    SparseMatrix,
    Stage,
    StageKernel,
    StateArray,
    Values,
    Variant,
    convert,
)


class RelaxationParams(msgspec.Struct, frozen=True):
    rows: int = 8
    entries: int = 8
    index_dtype: str = "int32"
    tolerance: float = 1e-10
    iterations: int = 200


class Relaxation(Iterative):
    """x of A x = b, with a dominant diagonal."""

    name = "relaxation"
    Params = RelaxationParams
    composites = (SparseMatrix("A"),)
    inputs = ("A.data", "A.indices", "A.indptr", "b")

    def infer(
        self, explicit: Mapping[str, Any], arrays: Mapping[str, tuple[tuple[int, ...], str]]
    ) -> RelaxationParams:
        values = dict(explicit)
        if "A.data" in arrays:
            values["rows"] = arrays["A.indptr"][0][0] - 1
            values["entries"] = arrays["A.data"][0][0]
            values["index_dtype"] = arrays["A.indices"][1]
        elif "b" in arrays:
            values["rows"] = values["entries"] = arrays["b"][0][0]
        params: RelaxationParams = convert(self, values)
        return params

    def load(self, p: RelaxationParams) -> int:
        return p.rows

    def arrays(self, p: RelaxationParams) -> Sequence[ArraySpec]:
        return (
            ArraySpec("A.data", "resident", (p.entries,), "float64"),
            ArraySpec("A.indices", "resident", (p.entries,), p.index_dtype),
            ArraySpec("A.indptr", "resident", (p.rows + 1,), p.index_dtype),
            ArraySpec("b", "split", (), "float64"),
            ArraySpec("x", "out", (), "float64"),
        )

    def state(self, p: RelaxationParams) -> Sequence[StateArray]:
        return (StateArray("estimate", (), "float64", is_whole=True),)

    def reductions(self, p: RelaxationParams) -> Sequence[Reduction]:
        return (Reduction("largest", combine="max"),)

    def start(self, p: RelaxationParams) -> Sequence[Stage]:
        return (Stage("zero", ("b",), ("estimate",)),)

    def iteration(self, p: RelaxationParams) -> Sequence[Stage]:
        return (Stage("relax", (*self.inputs, "estimate"), ("estimate",), ("largest",)),)

    def finish(self, p: RelaxationParams) -> Sequence[Stage]:
        return (Stage("result", ("estimate",), ("x",)),)

    def max_iterations(self, p: RelaxationParams) -> int:
        return p.iterations

    def converged(self, p: RelaxationParams, values: Values) -> bool:
        return bool(values.now["largest"] <= p.tolerance)

    def residual(self, p: RelaxationParams, values: Values) -> float:
        return float(values.now["largest"])

    def errors(
        self, p: RelaxationParams, inputs: Arrays, outputs: Arrays, rows: Rows, seed: int
    ) -> np.ndarray:
        residual = inputs["b"] - matrix(inputs, p.rows) @ outputs["x"]
        return np.asarray(np.abs(residual[rows.first : rows.stop]) / (10 * p.tolerance))

    def flops(self, p: RelaxationParams, x: int) -> float:
        return 2.0 * p.entries * x / p.rows

    def variants(self, kind: str) -> Sequence[Variant]:
        return (Variant("numpy", "1", make),) if kind == "cpu" else ()

    def generate(
        self, p: RelaxationParams, seed: int, array: str, first: int, out: np.ndarray
    ) -> None:
        """Generate b, and a diagonal matrix if there are as many entries as rows."""
        if array == "A.data":
            out[...] = 2.0
        elif array in ("A.indices", "A.indptr"):
            out[...] = np.arange(len(out))
        else:
            out[...] = np.arange(first, first + len(out)) + seed


def matrix(inputs: Arrays, rows: int) -> Any:
    """Return A as SciPy's."""
    parts = (inputs["A.data"], inputs["A.indices"], inputs["A.indptr"])
    return scipy.sparse.csr_array(parts, shape=(rows, rows))


def make(p: RelaxationParams, load: int, context: KernelContext) -> Mapping[str, StageKernel]:
    """Return the kernels by stage."""

    def zero(rows: Rows, inputs: Arrays, outputs: Arrays, values: Values, partials: Any) -> None:
        outputs["estimate"][...] = 0

    def relax(rows: Rows, inputs: Arrays, outputs: Arrays, values: Values, partials: Any) -> None:
        whole = matrix(inputs, p.rows)
        own = slice(rows.first, rows.stop)
        residual = inputs["b"] - whole[own] @ inputs["estimate"]
        outputs["estimate"][...] = inputs["estimate"][own] + residual / whole.diagonal()[own]
        partials["largest"][...] = np.abs(residual).max()

    def result(rows: Rows, inputs: Arrays, outputs: Arrays, values: Values, partials: Any) -> None:
        outputs["x"][...] = inputs["estimate"][rows.first : rows.stop]

    return {"zero": zero, "relax": relax, "result": result}
