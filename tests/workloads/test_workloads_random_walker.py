"""Segmentation of photographs by random walkers: `pcg` on the Laplacian of an image's graph."""

from __future__ import annotations

import importlib

import numpy as np
import pytest
import real_data
from solver_cases import CHOLESKY, solve

TOLERANCES = {"float32": 1e-6, "float64": 1e-8}
MAX_EXCESS = {"float32": 1e-4, "float64": 1e-6}
"""Of a probability over 1."""


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("preconditioner", ["diagonal", CHOLESKY])
@pytest.mark.parametrize("name", ["coins", "astronaut"])
def test_photographs_are_segmented_as_by_scikit_image(
    name: str, preconditioner: str, dtype: str
) -> None:
    pytest.importorskip("skimage", reason="scikit-image isn't installed")
    image = real_data.photograph(name)
    labels = real_data.seeds(image)
    segmentation = importlib.import_module("skimage.segmentation")
    expected = segmentation.random_walker(image, labels, beta=real_data.BETA, mode="bf")
    a, b = real_data.walker_system(image, labels, dtype)
    split, tolerance = (len(b) // 3, len(b) - len(b) // 3), TOLERANCES[dtype]

    result = solve(preconditioner, a, b, split, tolerance=tolerance)

    x, segmented = result.outputs["x"], labels.ravel().copy()
    segmented[segmented == 0] = np.where(x > 0.5, 2, 1)
    assert result.converged
    assert np.mean(segmented != expected.ravel()) < 1e-3
    assert 0 <= x.min() <= x.max() <= 1 + MAX_EXCESS[dtype]
