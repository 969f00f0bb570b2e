"""The workload `registration`: by how much images are shifted against one, to parts of a pixel.

Phase correlation with a maximum refined by a matrix product: M. Guizar-Sicairos, S. T. Thurman and
J. R. Fienup, "Efficient subpixel image registration algorithms", Optics Letters 33(2), 2008. As
`skimage.registration.phase_cross_correlation` does it, image by image.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta

from hetsched.memory import MemoryDemand
from hetsched.workload import Arrays, ArraySpec, Kernel, KernelContext
from hetsched_workloads.declarations import DTYPES
from hetsched_workloads.recomputed import Recomputed, pieces, transforms

if TYPE_CHECKING:
    import numpy as np

SPECTRA = 9
"""Arrays as large as an image in use at once: scaled, spectra, their product, correlation."""
MIN_AMPLITUDES = 100
"""Roundings below which an amplitude has no phase."""
TIE = 1e-3
"""Two correlations that differ by less, relatively, are the same maximum to rounding."""


class RegistrationParams(msgspec.Struct, frozen=True):
    count: Annotated[int, Meta(description="images, the units of the load")]
    rows: Annotated[int, Meta(description="rows of an image")]
    cols: Annotated[int, Meta(description="columns of an image")]
    upsample: Annotated[int, Meta(ge=1, le=1000, description="steps per pixel")] = 10
    dtype: Annotated[str, Meta(description=DTYPES.description)] = DTYPES.single.name


class Registration(Recomputed):
    """Shifts, in pixels, that bring images x onto a reference.

    y (2,) of each, for the rows and the columns.
    """

    name = "registration"
    Params = RegistrationParams
    inputs = ("x", "reference")
    axes = {"x": ("count", "rows", "cols"), "reference": ("rows", "cols")}

    def arrays(self, p: RegistrationParams) -> Sequence[ArraySpec]:
        return (
            ArraySpec("x", "split", (p.rows, p.cols), p.dtype),
            ArraySpec("reference", "resident", (p.rows, p.cols), p.dtype),
            ArraySpec("y", "out", (2,), "float64"),
        )

    def demand(self, p: RegistrationParams, kind: str) -> MemoryDemand:
        image = p.rows * p.cols * DTYPES[p.dtype].item_bytes
        return replace(super().demand(p, kind), work_bytes=SPECTRA * image)

    def kernel(self, p: RegistrationParams, context: KernelContext) -> Kernel:
        fft, keywords = transforms(context)

        def kernel(inputs: Arrays, outputs: Arrays) -> None:
            reference = fft.fft2(scaled(context.xp, inputs["reference"]), **keywords)
            for part in pieces(context, inputs["x"]):
                images = scaled(context.xp, inputs["x"][part])
                product = phases(context.xp, reference, fft.fft2(images, **keywords))
                coarse = abs(fft.ifft2(product, **keywords))
                outputs["y"][part] = shifts(context.xp, p.upsample, product, coarse)

        return kernel

    def flops(self, p: RegistrationParams, x: int) -> float:
        points, fine = p.rows * p.cols, math.ceil(1.5 * p.upsample)
        return x * points * (10.0 * max(1.0, math.log2(points)) + 8 * fine + 10)

    def generate(self, p: Any, seed: int, array: str, first: int, out: np.ndarray) -> None:
        """Fill `out` with a noisy pattern that is shifted by whole pixels."""
        import numpy as np

        super().generate(p, seed, array, first, out)
        pattern = np.random.default_rng(seed % 2**64).standard_normal((p.rows, p.cols))
        if array == "reference":
            out[...] = pattern
            return
        out *= 0.1
        for i in range(len(out)):
            shift = (first + i) % 7 - 3, (first + i) % 5 - 2
            out[i] += np.roll(pattern, shift, (0, 1)).astype(out.dtype)

    def exact(self, p: RegistrationParams, inputs: Arrays) -> np.ndarray:
        import numpy as np

        product = _product(inputs)
        coarse = abs(np.fft.ifft2(product))
        found: np.ndarray = shifts(np, p.upsample, product[None], coarse[None])[0]
        return found

    def scale(self, p: RegistrationParams, inputs: Arrays, i: int) -> Mapping[str, np.ndarray]:
        """Return what makes the tolerance of a reference a step and a half on the fine grid.

        Images without a pattern have the same correlation everywhere, so any shift is right.
        """
        import numpy as np

        coarse = abs(np.fft.ifft2(_product(self._unit(p, inputs, i))))
        is_flat = coarse.max() - coarse.min() <= TIE * coarse.max()
        step = math.inf if is_flat else 1.5 / p.upsample
        return {"y": np.full(2, step / self.tolerance(p))}

    def error(self, p: Any, unit: Arrays, y: np.ndarray, seed: int) -> float | None:
        """Check that no other shift in the image's neighbourhood correlates better."""
        import numpy as np

        product = _product(unit)
        if not np.isfinite(product).all():
            return None
        if y[np.equal(unit["x"].shape, 1)].any():  # no shift along an axis of one pixel
            return math.inf
        found, most = (correlation(np, product, at) for at in (y, self.exact(p, unit)))
        # All shifts of a black image are as good.
        return (most - found) / (TIE * most) if most else 0.0


def _product(unit: Arrays) -> np.ndarray:
    import numpy as np

    reference, spectrum = (np.fft.fft2(scaled(np, unit[name])) for name in ("reference", "x"))
    result: np.ndarray = phases(np, reference, spectrum)
    return result


def scaled(xp: Any, images: Any) -> Any:
    """Return images whose largest value is 1: faint ones have phases, too, and none overflow."""
    largest = abs(images).max(axis=(-2, -1), keepdims=True)
    return images / xp.maximum(largest, xp.finfo(images.dtype).smallest_normal)


def phases(xp: Any, reference: Any, spectra: Any) -> Any:
    """Return the spectrum of the correlation, of which only the phases are kept."""
    product = reference * spectra.conj()
    smallest = MIN_AMPLITUDES * xp.finfo(product.real.dtype).eps
    return product / xp.maximum(abs(product), smallest)


def shifts(xp: Any, upsample: int, product: Any, coarse: Any) -> Any:
    """Return the shifts (count, 2) at which the correlations are largest.

    `coarse`: |correlation| (count, rows, cols) at whole pixels. NaN where it isn't finite.
    """
    size = xp.asarray(product.shape[1:])
    shift, most = _largest(xp, coarse)
    shift -= size * (shift > size // 2)
    if upsample > 1:
        width = math.ceil(1.5 * upsample)
        steps = (xp.arange(width) - width // 2) / upsample
        rows, cols = (_waves(xp, product, axis, shift[:, axis, None] + steps) for axis in (0, 1))
        fine = abs(rows @ product @ cols.swapaxes(1, 2))
        shift += steps[_largest(xp, fine)[0].astype(int)]
    return shift * (size > 1) + 0 * most[:, None]


def _largest(xp: Any, values: Any) -> tuple[Any, Any]:
    """Return the place (count, 2) of the largest value of each matrix, and the value (count,)."""
    flat = values.reshape(len(values), -1)
    place = flat.argmax(axis=1)
    both = xp.stack((place // values.shape[2], place % values.shape[2]), axis=1)
    return both.astype("float64"), flat.max(axis=1)


def _waves(xp: Any, product: Any, axis: int, places: Any) -> Any:
    """Return the factors of an inverse transform along an axis, at any places (count, n)."""
    frequencies = xp.fft.fftfreq(product.shape[axis + 1])
    return xp.exp(2j * math.pi * places[..., None] * frequencies).astype(product.dtype)


def correlation(xp: Any, product: Any, shift: Any) -> float:
    rows, cols = (_waves(xp, product[None], axis, shift[None, axis, None]) for axis in (0, 1))
    return float(abs(rows @ product @ cols.swapaxes(1, 2))[0, 0, 0])
