"""Aligns a photograph that drifts from frame to frame: `registration`, then `hetsched.map`.

python examples/drift.py drift.png
"""

from __future__ import annotations

import sys

import numpy as np
import scipy.ndimage
import skimage.data
from matplotlib.figure import Figure

import hetsched

FRAMES, STEPS = 40, 20
"""Of the film; steps per pixel in which the drift is found."""


def moved(image: np.ndarray, shift: np.ndarray) -> np.ndarray:
    """Return an image moved by parts of a pixel, around its edges."""
    spectrum = scipy.ndimage.fourier_shift(np.fft.fft2(image), shift)
    return np.fft.ifft2(spectrum).real.astype("float32")


def align(frames: np.ndarray, shifts: np.ndarray) -> np.ndarray:
    return np.stack([moved(frame, shift) for frame, shift in zip(frames, shifts, strict=True)])


def main(picture: str) -> None:
    random = np.random.default_rng(1)
    still = skimage.data.camera()[128:384, 128:384].astype("float32")
    drift = np.cumsum(random.normal(0, 1, (FRAMES, 2)), axis=0)
    film = np.stack([moved(still, way) + random.normal(0, 20, still.shape) for way in drift])
    film = film.astype("float32")

    with hetsched.Local() as local:
        job = local.submit("registration", {"x": film, "reference": still}, upsample=STEPS)
        shifts = job.result(timeout=60)
    aligned = hetsched.map(align, film, shifts)

    left, middle, right = (figure := Figure(figsize=(12, 4), layout="constrained")).subplots(1, 3)
    left.plot(drift, ".", label=("rows", "columns"))
    left.set_prop_cycle(None)  # The same colours again
    left.plot(-shifts)
    left.set(title="drift (dots) and what was found", xlabel="frame", ylabel="pixels")
    left.legend()
    for axes, mean, title in ((middle, film, "mean of all frames"), (right, aligned, "aligned")):
        axes.imshow(mean.mean(0), cmap="gray")
        axes.set(title=title, xticks=(), yticks=())
    figure.savefig(picture)
    print(
        f"{picture}: {FRAMES} frames, drift off by at most {abs(shifts + drift).max():.2f} pixels"
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
