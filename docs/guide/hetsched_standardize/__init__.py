"""An example workload: standardize the rows of a matrix; results are checked. No NumPy in here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import msgspec

from hetsched.workload import (
    FLOAT32,
    FLOAT64,
    Arrays,
    DtypeChoice,
    Kernel,
    KernelContext,
    Workload,
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
    axes = {"x": ("rows", "cols"), "y": ("rows", "cols")}
    dtypes = DTYPES

    def kernel(self, p: StandardizeParams, context: KernelContext) -> Kernel:
        """Return kernel(inputs, outputs) for arrays of the device's module; it fills `y`."""
        xp = context.xp

        def kernel(inputs: Arrays, outputs: Arrays) -> None:
            x, y = inputs["x"], outputs["y"]
            xp.subtract(x, x.mean(axis=1, keepdims=True), out=y)
            deviation = xp.sqrt(xp.square(y).mean(axis=1, keepdims=True))
            xp.divide(y, xp.maximum(deviation, xp.finfo(y.dtype).tiny), out=y)

        return kernel

    def reference(self, p: StandardizeParams, inputs: Arrays, i: int) -> Mapping[str, np.ndarray]:
        from hetsched_standardize import verification  # needs NumPy

        return {"y": verification.reference(inputs["x"][i])}

    def residual(
        self, p: StandardizeParams, inputs: Arrays, outputs: Arrays, seed: int
    ) -> np.ndarray:
        from hetsched_standardize import verification

        return verification.residual(inputs["x"], outputs["y"], seed)
