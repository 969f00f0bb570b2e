"""Measures the pores of a noisy 3D foam that is read from Zarr and written to Zarr, slab by slab.

python examples/foam.py foam.zarr foam.png [SIDE]
"""

from __future__ import annotations

import sys

import numpy as np
import scipy.ndimage
import skimage.data
import zarr
from matplotlib.figure import Figure

import hetsched

SIGMA, SLICES = 2.0, 16
"""Of the filter, voxels; slices in a chunk."""


def solid(block: np.ndarray) -> np.ndarray:
    """Return where a smoothed block is foam; at its ends it needs 4 SIGMA more slices."""
    return (scipy.ndimage.gaussian_filter(block, SIGMA) > 0.5).astype("uint8")


def make(path: str, side: int) -> np.ndarray:
    """Write the noisy foam, and return where there is some."""
    foam = skimage.data.binary_blobs(side, blob_size_fraction=0.15, n_dim=3, rng=1)
    random = np.random.default_rng(1)
    noisy = zarr.create_array(path, shape=foam.shape, dtype="f4", chunks=(SLICES, side, side))
    for first in range(0, side, SLICES):
        slab = foam[first : first + SLICES]
        noisy[first : first + SLICES] = slab + random.normal(0, 0.5, slab.shape)
    return foam


def main(path: str, picture: str, side: str = "128") -> None:
    foam, result = make(path, int(side)), path.replace(".zarr", "-solid.zarr")
    hetsched.map(solid, path, out=result, overlap=round(4 * SIGMA))
    found = zarr.open_array(result, mode="r")
    pores = 1 - hetsched.reduce(np.sum, np.add, found) / foam.size

    middle = foam.shape[0] // 2
    images = {"as scanned": zarr.open_array(path, mode="r")[middle], "foam": found[middle]}
    figure = Figure(figsize=(9, 4.8), layout="constrained")
    for axes, (title, image) in zip(figure.subplots(1, 2), images.items(), strict=True):
        axes.imshow(image, cmap="gray")
        axes.set(title=title, xticks=(), yticks=())
    figure.savefig(picture)
    wrong = np.mean(found[:] != foam)
    truth = 1 - foam.mean()
    print(f"{picture}: {pores:.1%} pores, in truth {truth:.1%}; {wrong:.3f} of voxels wrong")


if __name__ == "__main__":
    main(*sys.argv[1:])
