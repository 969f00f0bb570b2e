"""The workload `welch`: power spectral densities of many channels, all their segments at once.

P. D. Welch, "The use of fast Fourier transform for the estimation of power spectra", IEEE
Transactions on Audio and Electroacoustics 15(2), 1967. As `scipy.signal.welch` defines it, which
transforms one segment after the other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec import Meta

from hetsched.errors import UsageError
from hetsched.memory import MemoryDemand
from hetsched.workload import Arrays, ArraySpec, Kernel, KernelContext
from hetsched_workloads.declarations import DTYPES
from hetsched_workloads.recomputed import Recomputed, pieces, power_rounding, transforms

if TYPE_CHECKING:
    import numpy as np

WINDOWS = {"hann": 0.5, "hamming": 0.54, "boxcar": 1.0}
"""Name -> the constant a of the periodic window a - (1 - a) cos(2 pi k / n)."""


class WelchParams(msgspec.Struct, frozen=True):
    channels: Annotated[int, Meta(description="signals, the units of the load")]
    samples: Annotated[int, Meta(description="samples of a signal")]
    nperseg: Annotated[int, Meta(ge=1, description="samples of a segment")] = 256
    noverlap: Annotated[
        int, Meta(ge=-1, description="samples that segments share; -1: half of one")
    ] = -1
    fs: Annotated[float, Meta(gt=0, description="sampling frequency")] = 1.0
    window: Literal["hann", "hamming", "boxcar"] = "hann"
    detrend: Annotated[
        Literal["constant", "none"], Meta(description="constant: subtract a segment's mean")
    ] = "constant"
    scaling: Annotated[
        Literal["density", "spectrum"], Meta(description="power per frequency, or power")
    ] = "density"
    dtype: Annotated[str, Meta(description=DTYPES.description)] = DTYPES.single.name

    @property
    def step(self) -> int:
        return self.nperseg - (self.nperseg // 2 if self.noverlap < 0 else self.noverlap)

    @property
    def segments(self) -> int:
        return (self.samples - self.nperseg) // self.step + 1


class Welch(Recomputed):
    """Power spectra of signals by Welch's method.

    y (nperseg // 2 + 1,) of each, at the frequencies ``rfftfreq(nperseg, 1 / fs)``.
    """

    name = "welch"
    Params = WelchParams
    has_opencl = True
    axes = {"x": ("channels", "samples")}
    tolerances = (1e-3, 1e-11)

    def load(self, p: WelchParams) -> int:
        if math.isinf(p.fs):
            raise UsageError("fs: inf, must be finite")
        if p.step < 1:
            raise UsageError(f"noverlap: {p.noverlap}, must be below nperseg, {p.nperseg}")
        if p.nperseg > p.samples:
            raise UsageError(f"nperseg: {p.nperseg}, but signals have {p.samples} samples")
        return super().load(p)

    def arrays(self, p: WelchParams) -> Sequence[ArraySpec]:
        return (
            ArraySpec("x", "split", (p.samples,), p.dtype),
            ArraySpec("y", "out", (p.nperseg // 2 + 1,), p.dtype),
        )

    def demand(self, p: WelchParams, kind: str) -> MemoryDemand:
        segments = p.segments * p.nperseg * DTYPES[p.dtype].item_bytes
        return replace(super().demand(p, kind), work_bytes=4 * segments)

    def kernel(self, p: WelchParams, context: KernelContext) -> Kernel:
        xp = context.xp
        fft, keywords = transforms(context)
        window, size = window_of(p, xp)
        n = p.nperseg
        twice = slice(1, (n + 1) // 2)  # frequencies whose negative ones have as much power

        def kernel(inputs: Arrays, outputs: Arrays) -> None:
            for part in pieces(context, inputs["x"]):
                x = inputs["x"][part]
                segments = xp.lib.stride_tricks.sliding_window_view(x, n, axis=1)[:, :: p.step]
                if p.detrend == "constant":
                    segments = segments - segments.mean(axis=2, keepdims=True)
                spectra = fft.rfft(segments * window, **keywords)
                power = (xp.square(spectra.real) + xp.square(spectra.imag)).mean(axis=1) / size
                power[:, twice] *= 2
                outputs["y"][part] = power

        return kernel

    def flops(self, p: WelchParams, x: int) -> float:
        return x * p.segments * p.nperseg * (2.5 * max(1.0, math.log2(p.nperseg)) + 5)

    def exact(self, p: WelchParams, inputs: Arrays) -> np.ndarray:
        import scipy.signal

        _, density = scipy.signal.welch(
            inputs["x"], p.fs, p.window, p.nperseg, p.nperseg - p.step,
            detrend=p.detrend if p.detrend == "constant" else False, scaling=p.scaling,
        )  # fmt: skip
        result: np.ndarray = density
        return result

    def rounding(self, p: WelchParams, inputs: Arrays, exact: np.ndarray) -> np.ndarray:
        import numpy as np

        # A mean that is subtracted leaves roundings of itself.
        whole = p.nperseg / p.fs if p.scaling == "density" else 1.0
        return power_rounding(p, exact, float(np.sqrt(np.square(inputs["x"]).mean() * whole)))


def window_of(p: WelchParams, xp: Any) -> tuple[Any, Any]:
    """Return the window, and what divides the power of a segment."""
    a, n = WINDOWS[p.window], p.nperseg
    window = (a - (1 - a) * xp.cos(2 * math.pi / n * xp.arange(n))).astype(p.dtype)
    if n == 1:
        window[:] = 1  # as SciPy's, instead of 0
    return window, p.fs * (window**2).sum() if p.scaling == "density" else window.sum() ** 2
