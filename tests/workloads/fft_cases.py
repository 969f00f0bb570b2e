"""Helpers of the FFT tests: data and kernels."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
from hetsched_workloads.fft import Fft, FftParams

from hetsched.workload import Kernel, KernelContext, Variant

FFT = Fft()
VARIANTS = FFT.variants("cpu")


def params(batch: str, dtype: str = "complex64", direction: str = "forward") -> FftParams:
    return FftParams(batch, dtype, direction)  # type: ignore[arg-type]


def variant(name: str) -> Variant:
    return next(found for found in VARIANTS if found.name == name)


def kernel(name: str, p: FftParams, cache_folder: Path) -> Kernel:
    made: Kernel = variant(name).make(p, p.count, KernelContext("cpu", 1, str(cache_folder), np))
    return made


def normal(p: FftParams, seed: int = 1) -> np.ndarray:
    x = np.empty((p.count, *p.shape), p.dtype)
    FFT.generate(p, seed, "x", 0, x)
    return x


def exact(p: FftParams, x: np.ndarray) -> np.ndarray:
    """A right result, by the reference, rounded to the job's dtype."""
    return np.stack([FFT.reference(p, {"x": x}, i)["y"] for i in range(len(x))]).astype(p.dtype)


def residual(p: FftParams, x: np.ndarray, y: np.ndarray, seed: int = 3) -> np.ndarray:
    return FFT.residual(p, {"x": x}, {"y": y}, seed)


def natural(side: int, seed: int) -> np.ndarray:
    """A picture with a huge mean and a 1/f spectrum, 0 to 255."""
    noise = np.fft.fft2(np.random.default_rng(seed).standard_normal((side, side)))
    f = np.hypot(np.fft.fftfreq(side)[:, None], np.fft.fftfreq(side)[None])
    picture = np.fft.ifft2(noise / (f + 1 / side)).real
    return np.clip(128 + 40 * picture / picture.std(), 0, 255).round()


@cache
def photograph() -> np.ndarray:
    """512 x 512 pixels that scikit-image ships, or a picture with their spectrum."""
    try:
        import skimage.data
    except ImportError:
        return natural(512, 0)
    return np.asarray(skimage.data.camera(), np.float32)
