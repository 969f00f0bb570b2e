"""Plots a few photographs above their log power spectra, as computed by hetsched.

python examples/spectra.py photographs.npy spectra.npy spectra.png
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

COLUMNS = 5


def main(photographs: str, spectra: str, picture: str) -> None:
    planes, transformed = (np.load(path, mmap_mode="r") for path in (photographs, spectra))
    names = Path(photographs).with_suffix(".txt").read_text(encoding="utf-8").splitlines()

    figure = Figure(figsize=(2.6 * COLUMNS, 5.6), layout="constrained")
    chosen = np.linspace(0, len(planes) - 1, COLUMNS).astype(int)
    for column, index in zip(figure.subplots(2, COLUMNS).T, chosen, strict=True):
        power = np.abs(np.fft.fftshift(transformed[index])) ** 2  # zero frequency in the middle
        images = np.abs(planes[index]), np.log10(power + 1.0)
        titles = names[index].replace("_", " "), "log power spectrum"
        for axes, image, title, colours in zip(
            column, images, titles, ("gray", "magma"), strict=True
        ):
            axes.imshow(image, cmap=colours, vmin=np.percentile(image, 1))
            axes.set_title(title, fontsize=9)
            axes.set_axis_off()
    figure.savefig(picture)
    print(f"{picture}: photographs and their spectra")


if __name__ == "__main__":
    main(*sys.argv[1:])
