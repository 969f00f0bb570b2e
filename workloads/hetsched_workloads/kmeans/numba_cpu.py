"""k-means by NumPy's matmul and loops that numba compiles.

Scores are (clusters, points), so that the search for the smallest is a loop over points with one
comparison for each: the compiler computes several at once. Measured on one core, 200,000 points,
16 dimensions, 64 clusters, in milliseconds: 12 in float32 and 18 to 21 in float64; NumPy alone 22
and 29; scikit-learn 15 and 22.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numba
import numpy as np

from hetsched.workload import KernelContext, StageKernel
from hetsched_workloads.kmeans import lloyd
from hetsched_workloads.kmeans.declaration import KMeansParams
from hetsched_workloads.kmeans.numpy_cpu import CoreKernels

BLOCK_BYTES = 128 << 10
"""Bytes of a block of scores: a fraction of the second-level cache; larger ones are slower."""

_compiled: Callable[..., Any] = numba.njit(nogil=True, error_model="numpy")


def make(p: KMeansParams, load: int, context: KernelContext) -> Mapping[str, StageKernel]:
    """Return the kernels by stage; compiles on small arrays first."""
    kernels = _CompiledKernels(p, load, BLOCK_BYTES)
    kernels.compile()
    return kernels.stages()


class _CompiledKernels(CoreKernels):
    def compile(self) -> None:
        """Label two points, and add them up."""
        p = self._p
        points = np.zeros((2, p.dimensions), p.dtype)
        labels, members = np.zeros(2, np.int32), np.zeros((p.clusters, p.dimensions + 1))
        for _, block in self._labelled(points, members[:, :-1], labels):
            self._add_members(labels, block, members)

    def _labelled(
        self, points: np.ndarray, centroids: np.ndarray, labels: np.ndarray
    ) -> Iterator[tuple[slice, np.ndarray]]:
        """Write the number of each point's nearest centroid; yield the shifted blocks."""
        origin = lloyd.origin(self._p, centroids)
        relative = centroids - origin
        weights = (-2 * relative).astype(self._dtype)
        squares = np.square(relative).sum(axis=1).astype(self._dtype)
        shift = origin.astype(self._dtype)
        for part in self._blocks(len(points)):
            size = part.stop - part.start
            block = self._block.reshape(-1)[: size * self._p.dimensions].reshape(size, -1)
            scores = self._scores[: size * self._p.clusters].reshape(-1, size)
            _shift(points[part], shift, block)
            np.matmul(weights, block.T, out=scores)
            _label(scores, squares, labels[part])
            yield part, block

    def _add_members(self, labels: np.ndarray, block: np.ndarray, members: np.ndarray) -> None:
        _add_rows(labels, block, members)


@_compiled
def _shift(points: Any, origin: Any, block: Any) -> None:
    for i in range(len(points)):
        for j in range(len(origin)):
            block[i, j] = points[i, j] - origin[j]


@_compiled
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


@_compiled
def _add_rows(labels: Any, block: Any, members: Any) -> None:
    """Add each row to that of its label, and 1 to the last column."""
    columns = block.shape[1]
    for i in range(len(labels)):
        row = members[labels[i]]
        for j in range(columns):
            row[j] += block[i, j]
        row[columns] += 1
