"""The workload `convolve`: images by a bank of filters, through Fourier transforms."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec import Meta

from hetsched.errors import UsageError
from hetsched.memory import MemoryDemand
from hetsched.workload import Arrays, ArraySpec, Kernel, KernelContext, Variant
from hetsched_workloads import DTYPES
from hetsched_workloads.installed import by_opencl_fft
from hetsched_workloads.recomputed import Recomputed, pieces, transforms

if TYPE_CHECKING:
    import numpy as np

SPECTRA = 5
"""Arrays as large as a padded image that are in use at once: rounded up for fast sizes."""

OPENCL = """
__kernel void multiply(OUT(COMPLEX, z), IN(COMPLEX, a), IN(COMPLEX, b))
{
    TO(COMPLEX, z); AT(COMPLEX, a); AT(COMPLEX, b);
    const ulong i = get_global_id(0);
    z[i].x = a[i].x * b[i].x - a[i].y * b[i].y;
    z[i].y = a[i].x * b[i].y + a[i].y * b[i].x;
}
__kernel void crop(OUT(REAL, y), IN(COMPLEX, z), int top, int left, int cols)
{
    TO(REAL, y); AT(COMPLEX, z);
    const ulong col = get_global_id(0), row = get_global_id(1);
    y[row * get_global_size(0) + col] = z[(row + top) * cols + col + left].x;
}
"""


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

    def variants(self, kind: str) -> Sequence[Variant]:
        return by_opencl_fft(_on_opencl) if kind == "opencl" else super().variants(kind)

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


def _on_opencl(p: ConvolveParams, context: KernelContext, library: str) -> Kernel:
    import numpy as np
    import pyopencl.array

    from hetsched_workloads.opencl_fft import PAD, Plans
    from hetsched_workloads.opencl_program import Program

    shape = p.fast
    plans = Plans(library, context, shape, p.dtype, (0, 1))
    program = Program(PAD + OPENCL, p.dtype, context, "convolutions")
    image_size = np.array([p.rows, p.cols], "i")
    filter_size = np.array([p.filter_rows, p.filter_cols], "i")
    place = np.array([p.window[0].start, p.window[1].start, shape[1]], "i")

    def kernel(inputs: Arrays, outputs: Arrays) -> None:
        x, y, filters = inputs["x"], outputs["y"], inputs["filters"]
        plan = plans.on(y.queue)

        def transformed(target: Any, matrix: Any, size: Any) -> Any:
            program("pad", shape[::-1], None, plan.before, matrix, *size)
            plan.transform(target, plan.before)
            return target

        full, *spectra = (pyopencl.array.empty_like(plan.after) for _ in range(1 + p.filters))
        for k, spectrum in enumerate(spectra):
            transformed(spectrum, filters[k], filter_size)
        for image in range(len(x)):
            transformed(plan.after, x[image], image_size)
            for k, spectrum in enumerate(spectra):
                program("multiply", (full.size,), None, plan.before, plan.after, spectrum)
                plan.transform(full, plan.before, True)
                program("crop", y.shape[:1:-1], None, y[image, k], full, *place)

    return kernel
