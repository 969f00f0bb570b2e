"""The workload `standardize`: each row of a matrix scaled to zero mean and unit variance.

This file is the declaration. It imports neither NumPy nor a vendor library, so that the command
line can read its parameters quickly; kernels and checks are imported when they are first used.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from hetsched.errors import DataError, UsageError
from hetsched.memory import MemoryDemand
from hetsched.workload import (
    FLOAT32,
    FLOAT64,
    Arrays,
    ArraySpec,
    DtypeChoice,
    Kernel,
    KernelContext,
    Variant,
    Workload,
    convert,
)

if TYPE_CHECKING:
    import numpy as np

DTYPES = DtypeChoice(FLOAT32, FLOAT64)


class StandardizeParams(msgspec.Struct, frozen=True):
    """Each field becomes a flag: `--rows`, `--cols`, `--dtype`."""

    rows: Annotated[int, msgspec.Meta(description="rows of the matrix, the units of the load")]
    cols: Annotated[int, msgspec.Meta(description="columns of the matrix")]
    dtype: Annotated[str, msgspec.Meta(description=DTYPES.description)] = DTYPES.single.name


class Standardize(Workload):
    """y = (x - mean(x)) / std(x) for every row x; one unit is one row."""

    name = "standardize"
    Params = StandardizeParams

    def load(self, p: StandardizeParams) -> int:
        if min(p.rows, p.cols) < 1:
            raise UsageError(f"rows {p.rows} and cols {p.cols} must be at least 1")
        DTYPES.parse(self.name, p.dtype)
        return p.rows

    def arrays(self, p: StandardizeParams) -> Sequence[ArraySpec]:
        return (
            ArraySpec("x", "split", (p.cols,), p.dtype),
            ArraySpec("y", "out", (p.cols,), p.dtype),
        )

    def demand(self, p: StandardizeParams, kind: str) -> MemoryDemand:
        row = p.cols * DTYPES[p.dtype].item_bytes
        return MemoryDemand(input_bytes=row, work_bytes=2 * row, output_bytes=row)

    def flops(self, p: StandardizeParams, x: int) -> float:
        return 6.0 * p.cols * x

    def variants(self, kind: str) -> Sequence[Variant]:
        if kind == "cpu":
            return (Variant("numpy", importlib.metadata.version("numpy"), make_numpy),)
        if kind == "cuda" and importlib.util.find_spec("cupy"):
            return (Variant("cupy", "1", make_cupy),)
        return ()

    def generate(
        self, p: StandardizeParams, seed: int, array: str, first: int, out: np.ndarray
    ) -> None:
        _verification().generate(seed, first, out)

    def reference(self, p: StandardizeParams, inputs: Arrays, i: int) -> Mapping[str, np.ndarray]:
        return {"y": _verification().reference(inputs["x"][i])}

    def residual(
        self, p: StandardizeParams, inputs: Arrays, outputs: Arrays, seed: int
    ) -> np.ndarray:
        errors: np.ndarray = _verification().residual(inputs["x"], outputs["y"], seed)
        return errors

    def infer(
        self, explicit: Mapping[str, Any], arrays: Mapping[str, tuple[tuple[int, ...], str]]
    ) -> StandardizeParams:
        """Take rows and cols from the input array, if there is one."""
        values = dict(explicit)
        if "dtype" in explicit:
            values["dtype"] = DTYPES.parse(self.name, explicit["dtype"]).name
        if "x" in arrays:
            shape, stored = arrays["x"]
            dtype = DTYPES.fitting(stored)
            if len(shape) != 2 or 0 in shape or dtype is None:
                raise DataError(f"x holds {stored} of shape {shape}; standardize needs a matrix")
            values = {"dtype": dtype.name, **values, "rows": shape[0], "cols": shape[1]}
        params: StandardizeParams = convert(self, values)
        self.load(params)
        return params


def make_numpy(p: StandardizeParams, chunk: int, context: KernelContext) -> Kernel:
    """Return a kernel for chunks of up to `chunk` rows on a core."""
    kernel: Kernel = importlib.import_module("hetsched_standardize.kernels").make(context.xp)
    return kernel


make_cupy = make_numpy
"""The same array code runs on CuPy: `context.xp` is the array module of the device."""


def _verification() -> Any:
    return importlib.import_module("hetsched_standardize.verification")
