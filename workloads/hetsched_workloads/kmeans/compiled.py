"""k-means by a loop over blocks of points that numba compiles, with BLAS for their products.

Scores are (clusters, points), so that the search for the smallest is a loop over points with one
comparison for each: the compiler computes several at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from hetsched.workload import KernelContext, StageKernel
from hetsched_workloads.compiling import compiled, compiling
from hetsched_workloads.kmeans import KMeansParams
from hetsched_workloads.kmeans.kernels import LloydKernels, origin_of

BLOCK_BYTES = 128 << 10
"""Bytes of a block of scores: a fraction of the second-level cache; larger ones are slower."""


@compiling
def make(p: KMeansParams, load: int, context: KernelContext) -> Mapping[str, StageKernel]:
    kernels = _CompiledKernels(p, load, np, BLOCK_BYTES)
    kernels.compile()
    return kernels.stages()


class _CompiledKernels(LloydKernels):
    def compile(self) -> None:
        p = self._p
        points, labels = np.zeros((2, p.dimensions), p.dtype), np.zeros(2, np.int32)
        centroids = np.zeros((p.clusters, p.dimensions))
        self._nearest(points, centroids, labels, labels, np.zeros((p.clusters, p.dimensions + 1)))

    def _nearest(
        self, points: Any, centroids: np.ndarray, labels: Any, former: Any, sums: Any
    ) -> int:
        origin = origin_of(self._p, centroids)
        relative = centroids - origin
        weights = (-2 * relative).astype(self._dtype)
        squares = np.square(relative).sum(axis=1).astype(self._dtype)
        if sums is None:
            former, sums = labels, np.zeros((0, 0))
        own = labels, former, sums, self._block.reshape(-1), self._scores
        return int(_nearest(points, origin.astype(self._dtype), weights, squares, *own))


@compiled()
def _nearest(
    points: Any, origin: Any, weights: Any, squares: Any,
    labels: Any, former: Any, sums: Any, area: Any, scores: Any,
) -> int:  # fmt: skip
    """See `LloydKernels._nearest`; no `sums` if they are empty."""
    clusters, columns = weights.shape
    step, changed = len(scores) // clusters, 0
    for start in range(0, len(points), step):
        size = min(step, len(points) - start)
        block = area[: size * columns].reshape(size, columns)
        for i in range(size):
            for j in range(columns):
                block[i, j] = points[start + i, j] - origin[j]
        products = scores[: clusters * size].reshape(clusters, size)
        np.dot(weights, block.T, products)
        own = labels[start : start + size]
        _label(products, squares, own)
        if len(sums):
            for i in range(size):
                changed += own[i] != former[start + i]
                row = sums[own[i]]
                for j in range(columns):
                    row[j] += block[i, j]
                row[columns] += 1
    return changed


@compiled()
def _label(scores: Any, squares: Any, labels: Any) -> None:
    """Write the row with the smallest score of each column; overwrites the first row."""
    least = scores[0]
    for i in range(len(labels)):
        least[i] += squares[0]
        labels[i] = 0
    for cluster in range(1, len(squares)):
        row, square, number = scores[cluster], squares[cluster], np.int32(cluster)
        for i in range(len(labels)):
            score = row[i] + square
            is_less = score < least[i]
            labels[i] = number if is_less else labels[i]
            least[i] = score if is_less else least[i]
