"""The workload `power_spectrum`: |rfft2|^2 of each plane of a stack of real images."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta

from hetsched.workload import Arrays, ArraySpec, Kernel, KernelContext
from hetsched_workloads.declarations import DTYPES
from hetsched_workloads.recomputed import Recomputed, pieces, power_rounding, transforms

if TYPE_CHECKING:
    import numpy as np


class PowerSpectrumParams(msgspec.Struct, frozen=True):
    count: Annotated[int, Meta(description="images, the units of the load")]
    rows: Annotated[int, Meta(description="rows of an image")]
    cols: Annotated[int, Meta(description="columns of an image")]
    dtype: Annotated[str, Meta(description=DTYPES.description)] = DTYPES.single.name


class PowerSpectrum(Recomputed):
    """Power spectra |rfft2(x)|^2 of images x.

    y is (rows, cols // 2 + 1) of each; the other half mirrors it.
    """

    name = "power_spectrum"
    Params = PowerSpectrumParams
    has_opencl = True
    axes = {"x": ("count", "rows", "cols")}

    def arrays(self, p: PowerSpectrumParams) -> Sequence[ArraySpec]:
        return (
            ArraySpec("x", "split", (p.rows, p.cols), p.dtype),
            ArraySpec("y", "out", (p.rows, p.cols // 2 + 1), p.dtype),
        )

    def kernel(self, p: PowerSpectrumParams, context: KernelContext) -> Kernel:
        fft, keywords = transforms(context)

        def kernel(inputs: Arrays, outputs: Arrays) -> None:
            for part in pieces(context, inputs["x"]):
                spectra = fft.rfft2(inputs["x"][part], **keywords)
                power = outputs["y"][part]
                context.xp.square(spectra.real, out=power)
                power += context.xp.square(spectra.imag)

        return kernel

    def flops(self, p: PowerSpectrumParams, x: int) -> float:
        points = p.rows * p.cols
        return x * points * (2.5 * max(1.0, math.log2(points)) + 1.5)

    def exact(self, p: PowerSpectrumParams, inputs: Arrays) -> np.ndarray:
        import numpy as np

        half: np.ndarray = np.abs(np.fft.fft2(inputs["x"]))[:, : p.cols // 2 + 1]
        return half**2

    def rounding(self, p: PowerSpectrumParams, inputs: Arrays, exact: np.ndarray) -> np.ndarray:
        import numpy as np

        return power_rounding(p, exact, float(np.linalg.norm(inputs["x"])))
