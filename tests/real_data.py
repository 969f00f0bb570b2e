"""Real data for the solvers: photographs of scikit-image, handwritten digits of scikit-learn.

Segmentation by random walkers is a sparse linear system (Grady, "Random walks for image
segmentation", IEEE PAMI 28(11), 2006): pixels are connected to their neighbours with weights
exp(-beta' |gradient|^2); the probability that a walker from a pixel comes to a seed of the first
kind before one of the second kind solves a linear system.
"""

from __future__ import annotations

import importlib

import numpy as np
import scipy.sparse

BETA = 130.0
MIN_WEIGHT = 1e-10
EVERY_PIXEL = 4
"""Of the rows and columns of a photograph, one in so many gives colours."""


def photograph(name: str) -> np.ndarray:
    """Return a part of a photograph, grey values from 0 to 1."""
    image = getattr(importlib.import_module("skimage.data"), name)()
    grey = image.mean(axis=2) if image.ndim == 3 else image
    part: np.ndarray = grey[40:136, 60:172].astype(np.float64) / 255
    return part


def seeds(image: np.ndarray) -> np.ndarray:
    """Return 1 for the darkest pixels, 2 for the brightest ones, 0 for those to be segmented."""
    low, high = np.quantile(image, (0.1, 0.9))
    return np.where(image <= low, 1, np.where(image >= high, 2, 0)).astype(np.int32)


def walker_system(
    image: np.ndarray, labels: np.ndarray, dtype: str = "float64"
) -> tuple[scipy.sparse.csr_array, np.ndarray]:
    """Return A and b; x is the probability of the second kind, for each pixel without a seed."""
    free, bright = np.flatnonzero(labels.ravel() == 0), np.flatnonzero(labels.ravel() == 2)
    rows = _laplacian(image)[free]
    a = scipy.sparse.csr_array(rows[:, free])
    a.sort_indices()
    b = -np.asarray(rows[:, bright].sum(axis=1))
    return a.astype(dtype), b.astype(dtype)


def _laplacian(image: np.ndarray) -> scipy.sparse.csr_array:
    """Of the pixels with their four neighbours, weighted as in scikit-image."""
    numbers = np.arange(image.size).reshape(image.shape)
    pairs, differences = [], []
    for axis in (0, 1):
        count = image.shape[axis]
        first, second = (np.take(numbers, range(s, count - 1 + s), axis) for s in (0, 1))
        pairs.append((first.ravel(), second.ravel()))
        differences.append(np.diff(image, axis=axis).ravel())
    weights = np.exp(-BETA / (10 * image.std()) * np.concatenate(differences) ** 2) + MIN_WEIGHT
    rows, columns = (np.concatenate(side) for side in zip(*pairs, strict=True))
    half = scipy.sparse.coo_array((weights, (rows, columns)), (image.size, image.size))
    both = scipy.sparse.csr_array(half + half.T)
    return scipy.sparse.csr_array(scipy.sparse.diags_array(both.sum(axis=1)) - both)


def digits(dtype: str) -> np.ndarray:
    """Return 1797 handwritten digits of 64 pixels."""
    data: np.ndarray = importlib.import_module("sklearn.datasets").load_digits().data
    return data.astype(dtype)


def colours(dtype: str) -> np.ndarray:
    """Return the colours of a photograph's pixels, (count, 3), 0 to 1."""
    image = importlib.import_module("skimage.data").astronaut()[::EVERY_PIXEL, ::EVERY_PIXEL]
    return (image.reshape(-1, 3) / np.float32(255)).astype(dtype)
