"""Helpers of the FFT tests: data, kernels, and ways to be wrong."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
from hetsched_workloads.fft import Fft, FftParams

from hetsched.workload import Arrays, Kernel, KernelContext, Variant

FFT = Fft()
VARIANTS = FFT.variants("cpu")


def params(batch: str, dtype: str = "complex64", direction: str = "forward") -> FftParams:
    return FftParams(batch, dtype, direction)


def variant(name: str) -> Variant:
    return next(found for found in VARIANTS if found.name == name)


def kernel(name: str, p: FftParams, cache_folder: Path, chunk: int | None = None) -> Kernel:
    context = KernelContext("cpu", 1, str(cache_folder), np)
    return variant(name).make(p, chunk or FFT.load(p), context)


def normal(p: FftParams, seed: int = 1) -> np.ndarray:
    x = np.empty((FFT.load(p), *p.shape), p.dtype)
    FFT.generate(p, seed, "x", 0, x)
    return x


def exact(p: FftParams, x: np.ndarray) -> np.ndarray:
    """A right result, by the reference, rounded to the job's dtype."""
    inputs = {"x": x}
    return np.stack([FFT.reference(p, inputs, i)["y"] for i in range(len(x))]).astype(p.dtype)


def residual(p: FftParams, x: np.ndarray, y: np.ndarray, seed: int = 3) -> np.ndarray:
    inputs: Arrays = {"x": x}
    return FFT.residual(p, inputs, {"y": y}, seed)


@cache
def photographs(side: int, count: int) -> tuple[np.ndarray, ...]:
    """Crops of the photographs that scikit-image ships, or pictures with their spectrum."""
    try:
        import skimage.data
    except ImportError:
        return tuple(natural(side, seed) for seed in range(count))
    names = ("astronaut", "camera", "coffee", "chelsea", "rocket", "moon", "brick", "grass")
    crops = []
    for name in names:
        image = np.asarray(getattr(skimage.data, name)(), np.float32)
        image = image.mean(axis=2) if image.ndim == 3 else image
        top = min(image.shape[0] - side, 64)
        if top >= 0:
            crops.append(image[top : top + side, :side])
            if image.shape != (side, side):
                crops.append(image[-side:, -side:])
    return tuple(crops[:count])


def natural(side: int, seed: int) -> np.ndarray:
    """A picture with a huge mean and a 1/f spectrum, 0 to 255."""
    noise = np.fft.fft2(np.random.default_rng(seed).standard_normal((side, side)))
    f = np.hypot(np.fft.fftfreq(side)[:, None], np.fft.fftfreq(side)[None])
    picture = np.fft.ifft2(noise / (f + 1 / side)).real
    return np.clip(128 + 40 * picture / picture.std(), 0, 255).round()
