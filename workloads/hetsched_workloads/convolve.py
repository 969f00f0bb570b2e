"""The workload `convolve`: images by a bank of filters, through Fourier transforms."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
from msgspec import Meta

from hetsched.errors import UsageError
from hetsched.memory import MemoryDemand
from hetsched.workload import Arrays, ArraySpec, Kernel, KernelContext
from hetsched_workloads.declarations import DTYPES
from hetsched_workloads.recomputed import Recomputed, pieces, transforms

if TYPE_CHECKING:
    import numpy as np

SPECTRA = 5
"""Arrays as large as a padded image that are in use at once: rounded up for fast sizes."""


class ConvolveParams(msgspec.Struct, frozen=True):
    count: Annotated[int, Meta(description="images, the units of the load")]
    rows: Annotated[int, Meta(description="rows of an image")]
    cols: Annotated[int, Meta(description="columns of an image")]
    filters: Annotated[int, Meta(description="number of filters")]
    filter_rows: Annotated[int, Meta(description="rows of a filter")]
    filter_cols: Annotated[int, Meta(description="columns of a filter")]
    mode: Annotated[
        Literal["full", "same", "valid"], Meta(description="size of the result, as SciPy's")
    ] = "same"
    dtype: Annotated[str, Meta(description=DTYPES.description)] = DTYPES.single.name

    @property
    def padded(self) -> tuple[int, int]:
        """Sizes of the full convolution."""
        return self.rows + self.filter_rows - 1, self.cols + self.filter_cols - 1

    @property
    def fast(self) -> tuple[int, int]:
        """Sizes at least as large, which are transformed faster."""
        import scipy.fft

        rows, cols = (scipy.fft.next_fast_len(size, real=True) for size in self.padded)
        return rows, cols

    @property
    def window(self) -> tuple[slice, slice]:
        """The part of the full convolution that is the result."""
        sizes = (self.rows, self.filter_rows), (self.cols, self.filter_cols)
        if self.mode == "full":
            starts = [(0, full) for full in self.padded]
        elif self.mode == "same":
            starts = [((m - 1) // 2, n) for n, m in sizes]
        else:
            starts = [(m - 1, n - m + 1) for n, m in sizes]
        rows, cols = (slice(start, start + size) for start, size in starts)
        return rows, cols


class Convolve(Recomputed):
    """Images convolved with each filter of a bank.

    y[i, k] = x[i] * filters[k], (filters, rows, cols) of each image.
    """

    name = "convolve"
    Params = ConvolveParams
    has_opencl = True
    inputs = ("x", "filters")
    axes = {
        "x": ("count", "rows", "cols"),
        "filters": ("filters", "filter_rows", "filter_cols"),
    }
    tolerances = (1e-3, 1e-11)

    def load(self, p: ConvolveParams) -> int:
        if p.mode == "valid" and (p.filter_rows > p.rows or p.filter_cols > p.cols):
            sizes = f"{p.filter_rows}x{p.filter_cols} over {p.rows}x{p.cols}"
            raise UsageError(f"mode valid: a filter is larger than an image, {sizes}")
        return super().load(p)

    def arrays(self, p: ConvolveParams) -> Sequence[ArraySpec]:
        rows, cols = (part.stop - part.start for part in p.window)
        shape = p.filters, p.filter_rows, p.filter_cols
        return (
            ArraySpec("x", "split", (p.rows, p.cols), p.dtype),
            ArraySpec("filters", "resident", shape, p.dtype),
            ArraySpec("y", "out", (p.filters, rows, cols), p.dtype),
        )

    def demand(self, p: ConvolveParams, kind: str) -> MemoryDemand:
        spectrum = math.prod(p.padded) * DTYPES[p.dtype].item_bytes
        demand = super().demand(p, kind)
        return replace(
            demand,
            work_bytes=SPECTRA * spectrum,
            resident_bytes=demand.resident_bytes + 2 * p.filters * spectrum,
        )

    def kernel(self, p: ConvolveParams, context: KernelContext) -> Kernel:
        fft, keywords = transforms(context)
        shape = p.fast

        def kernel(inputs: Arrays, outputs: Arrays) -> None:
            filters = fft.rfft2(inputs["filters"], shape, **keywords)
            for part in pieces(context, inputs["x"]):
                spectra = fft.rfft2(inputs["x"][part], shape, **keywords)
                for k in range(p.filters):
                    full = fft.irfft2(spectra * filters[k], shape, **keywords)
                    outputs["y"][part][:, k] = full[:, *p.window]

        return kernel

    def flops(self, p: ConvolveParams, x: int) -> float:
        points = math.prod(p.padded)
        return x * points * ((p.filters + 1) * 2.5 * max(1.0, math.log2(points)) + 3 * p.filters)

    def exact(self, p: ConvolveParams, inputs: Arrays) -> np.ndarray:
        import numpy as np

        spectra = np.fft.fft2(inputs["x"], p.padded) * np.fft.fft2(inputs["filters"], p.padded)
        full: np.ndarray = np.fft.ifft2(spectra).real
        return full[:, *p.window]

    def rounding(self, p: ConvolveParams, inputs: Arrays, exact: np.ndarray) -> float:
        import numpy as np

        rms = np.sqrt(np.square(inputs["x"]).mean())
        return float(rms * np.abs(inputs["filters"]).sum(axis=(1, 2)).max())
