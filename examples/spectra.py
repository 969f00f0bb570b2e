"""Plots a few photographs above their log power spectra, as computed by hetsched.

python examples/spectra.py photographs.npy spectra.npy spectra.png
"""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes

COLUMNS = 5
SKIP = 32
"""Pixels between the samples of a thumbnail."""


def log_power(spectrum: np.ndarray) -> np.ndarray:
    """Return log10 of the power of a (rows, cols) spectrum, zero frequency in the middle."""
    power = np.abs(np.fft.fftshift(spectrum)) ** 2
    return np.asarray(np.log10(power + 1.0))


def choose(planes: np.ndarray, count: int) -> list[int]:
    """Choose `count` different planes: each thumbnail is far from all chosen before."""
    small = np.abs(planes[:, ::SKIP, ::SKIP]).reshape(len(planes), -1)
    small = (small - small.mean(1, keepdims=True)) / (small.std(1, keepdims=True) + 1.0)
    chosen = [0]
    distance = np.full(len(planes), np.inf)
    while len(chosen) < min(count, len(planes)):
        distance = np.minimum(distance, np.linalg.norm(small - small[chosen[-1]], axis=1))
        chosen.append(int(distance.argmax()))
    return chosen


def show(axes: Axes, pixels: np.ndarray, colours: str, title: str) -> None:
    axes.imshow(pixels, cmap=colours, vmin=np.percentile(pixels, 1), vmax=pixels.max())
    axes.set_title(title, fontsize=9)
    axes.set_axis_off()


def picture(planes: np.ndarray, spectra: np.ndarray, names: list[str], path: Path) -> None:
    """Save the picture: photographs in the upper row, spectra in the lower row."""
    chosen = choose(planes, COLUMNS)
    figure, rows = plt.subplots(2, len(chosen), figsize=(2.6 * len(chosen), 5.6), squeeze=False)
    for column, index in enumerate(chosen):
        show(rows[0][column], np.abs(planes[index]), "gray", names[index].replace("_", " "))
        show(rows[1][column], log_power(spectra[index]), "magma", "log power spectrum")
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description="Draw photographs and their power spectra.")
    for name in ("photographs", "spectra", "picture"):
        parser.add_argument(name, type=Path)
    given = parser.parse_args()
    planes, spectra = (np.load(path, mmap_mode="r") for path in (given.photographs, given.spectra))
    if planes.shape != spectra.shape:
        raise SystemExit(f"{given.spectra}: {spectra.shape}, the photographs are {planes.shape}")
    names = given.photographs.with_suffix(".txt").read_text(encoding="utf-8").splitlines()
    picture(planes, spectra, names, given.picture)
    print(f"{given.picture}: photographs and their spectra")


if __name__ == "__main__":
    main()
