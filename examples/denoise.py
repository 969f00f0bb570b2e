"""Removes noise from a stack of photographs by `hetsched.map`, and draws before and after.

python examples/denoise.py photographs.npy denoised.png
"""

from __future__ import annotations

import sys
import time

import numpy as np
import scipy.ndimage
from matplotlib.figure import Figure

import hetsched

NOISY = 0.1
"""Part of the pixels that are black or white instead."""


def smooth(block: np.ndarray, size: int) -> np.ndarray:
    """Return the median of each pixel's neighbourhood within its image."""
    return scipy.ndimage.median_filter(block, (1, size, size))


def main(source: str, picture: str) -> None:
    clean = np.abs(np.load(source)).astype("uint8")
    random = np.random.default_rng(1).random(clean.shape)
    noisy = np.where(random < NOISY, np.where(random < NOISY / 2, 0, 255), clean).astype("uint8")

    begun = time.perf_counter()
    denoised = hetsched.map(smooth, noisy, size=3)
    seconds = time.perf_counter() - begun

    errors = [np.abs(images - clean.astype(float)).mean() for images in (noisy, denoised)]
    figure = Figure(figsize=(10, 5.4), layout="constrained")
    titles = (f"noisy: off by {errors[0]:.1f}", f"median of 3x3: off by {errors[1]:.1f}")
    for axes, images, title in zip(figure.subplots(1, 2), (noisy, denoised), titles, strict=True):
        axes.imshow(images[0], cmap="gray")
        axes.set_title(title)
        axes.set_axis_off()
    figure.savefig(picture)
    print(hetsched.profile())
    left = errors[1] / errors[0]
    print(f"{picture}: {len(clean)} photographs in {seconds:.2f} s, {left:.2f} of the error left")


if __name__ == "__main__":
    main(*sys.argv[1:])
