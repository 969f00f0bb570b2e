"""Segmentation of photographs by random walkers: `pcg` on the Laplacian of an image's graph.

Grady, "Random walks for image segmentation", IEEE PAMI 28(11), 2006: pixels are connected to their
neighbours with weights exp(-beta' |gradient|^2); the probability that a walker from a pixel comes
to a seed of the first kind before one of the second kind solves a linear system.
"""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from solver_cases import pcg

BETA = 130.0
MIN_WEIGHT = 1e-10


def laplacian(image: np.ndarray) -> scipy.sparse.csr_array:
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


def photograph(name: str) -> np.ndarray:
    """A part of a photograph, grey values from 0 to 1."""
    data: Any = pytest.importorskip("skimage.data", reason="scikit-image isn't installed")
    image = getattr(data, name)()
    grey = image.mean(axis=2) if image.ndim == 3 else image
    part: np.ndarray = grey[40:136:1, 60:172:1].astype(np.float64) / 255
    return part


@pytest.mark.parametrize("preconditioner", ["diagonal", "cholesky"])
@pytest.mark.parametrize("name", ["camera", "coins", "astronaut", "coffee"])
def test_photographs_are_segmented_as_by_scikit_image(name: str, preconditioner: str) -> None:
    image = photograph(name)
    low, high = np.quantile(image, (0.1, 0.9))
    labels = np.where(image <= low, 1, np.where(image >= high, 2, 0)).astype(np.int32)
    segmentation = importlib.import_module("skimage.segmentation")
    expected = segmentation.random_walker(image, labels, beta=BETA, mode="bf")
    free, seeds = np.flatnonzero(labels.ravel() == 0), np.flatnonzero(labels.ravel() == 2)
    rows = laplacian(image)[free]
    a = scipy.sparse.csr_array(rows[:, free])
    a.sort_indices()
    b = -np.asarray(rows[:, seeds].sum(axis=1))

    result = pcg(a, b, (len(b), 0), preconditioner=preconditioner, tolerance=1e-8)

    segmented = labels.ravel().copy()
    segmented[free] = np.where(result.outputs["x"] > 0.5, 2, 1)
    assert result.converged
    assert np.mean(segmented != expected.ravel()) < 1e-3
    assert 0 <= result.outputs["x"].min() <= result.outputs["x"].max() <= 1 + 1e-6
