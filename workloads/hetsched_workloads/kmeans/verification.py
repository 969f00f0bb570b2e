"""Test data of k-means, and the check of every label."""

from __future__ import annotations

import numpy as np
from scipy.spatial.distance import cdist

from hetsched.workload import Arrays, Rows
from hetsched.workload.streams import fill_units, unit_streams
from hetsched_workloads.kmeans import KMeansParams

BLOCK_BYTES = 1 << 22
SEPARATION = 4.0
"""Standard deviation of the centres of the generated clusters; their points have 1."""
TOLERANCE = 32.0
"""Roundings of the squares of coordinates by which a label may be wrong."""


def generate(p: KMeansParams, seed: int, array: str, first: int, out: np.ndarray) -> None:
    """Fill `out` with points of `clusters` normal distributions, or with starting centroids."""
    fill_units(seed, array, first, out)
    streams = unit_streams(seed, "centres", 0, p.clusters)
    centres = np.array([SEPARATION * each.standard_normal(p.dimensions) for each in streams])
    out += centres[np.arange(first, first + len(out)) * 7 % p.clusters]


def errors(p: KMeansParams, inputs: Arrays, outputs: Arrays, rows: Rows) -> np.ndarray:
    """Return how much farther than the nearest centroid the one of the label is, (count,).

    Computed from differences in double precision, in units of what rounding explains. All rows
    are wrong if the inertia is not the sum of all squares.
    """
    points, labels, centroids = inputs["points"], outputs["labels"], outputs["centroids"]
    eps = float(np.finfo(points.dtype).eps)
    size = np.square(centroids - centroids[0]).sum(axis=1).max()
    excess = np.empty(rows.count)
    step = max(1, BLOCK_BYTES // (8 * p.clusters))
    for first in range(rows.first, rows.stop, step):
        part = slice(first, min(first + step, rows.stop))
        squares = cdist(points[part], centroids, "sqeuclidean")
        label = labels[part]
        is_label = (label >= 0) & (label < p.clusters)
        chosen = squares[np.arange(len(label)), np.where(is_label, label, 0)]
        scale = size + squares[:, 0] + np.square(centroids[0]).sum() * eps
        allowed = TOLERANCE * eps * np.sqrt(p.dimensions) * scale
        difference = np.where(is_label, chosen, np.nan) - squares.min(axis=1)
        excess[part.start - rows.first : part.stop - rows.first] = np.divide(
            difference, allowed, out=np.where(difference == 0, 0.0, np.inf), where=allowed > 0
        )
    if not _inertia_is_right(points, outputs):
        excess[...] = np.inf
    return excess


def _inertia_is_right(points: np.ndarray, outputs: Arrays) -> bool:
    labels, centroids = outputs["labels"], outputs["centroids"]
    step = max(1, BLOCK_BYTES // (8 * points.shape[1]))
    total = 0.0
    for first in range(0, len(points), step):
        part = slice(first, first + step)
        nearest = centroids[np.clip(labels[part], 0, len(centroids) - 1)]
        total += float(np.square(points[part] - nearest).sum())
    size = float(np.square(centroids).sum(axis=1).max()) * len(points)
    return bool(abs(total - outputs["inertia"][0]) <= 1e-9 * total + 1e-13 * size)
