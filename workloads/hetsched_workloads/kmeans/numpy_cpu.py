"""k-means by NumPy's matmul, and SciPy's sparse product for the sums of the clusters.

Points are handled in blocks that stay in the cache. A block is shifted by the first centroid and
gets a column of ones: |x - c|^2 - |x|^2 = c.c - 2 x.c is one product with the matrix of centroids,
without cancellation even if all points are far from the origin, and the sums of a cluster's rows
contain their number. The matrix of labels times the block is that sum: a product with a sparse
matrix that has one 1 per column.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from scipy.sparse import csc_array

from hetsched.errors import DataError
from hetsched.workload import Arrays, KernelContext, Rows, StageKernel, Values
from hetsched_workloads.kmeans import lloyd
from hetsched_workloads.kmeans.declaration import KMeansParams
from hetsched_workloads.kmeans.variates import exponential, stream_key

BLOCK_BYTES = 1 << 20
"""Bytes of a block of scores: about the second-level cache."""
MIN_BLOCK = 64
"""Points: with fewer, products with the centroids are slow."""


def make(p: KMeansParams, load: int, context: KernelContext) -> Mapping[str, StageKernel]:
    """Return the kernels by stage, which share work areas of some MiB."""
    return CoreKernels(p, load, BLOCK_BYTES).stages()


class CoreKernels:
    """The kernels; a subclass may label points and sum clusters in another way."""

    def __init__(self, p: KMeansParams, load: int, block_bytes: int) -> None:
        self._p = p
        self._dtype = np.dtype(p.dtype)
        row_bytes = max(p.clusters, p.dimensions + 1) * self._dtype.itemsize
        self._step = max(1, min(load, max(MIN_BLOCK, block_bytes // row_bytes)))
        self._block = np.ones((self._step, p.dimensions + 1), p.dtype)
        self._scores = np.empty(self._step * p.clusters, p.dtype)
        self._labels = np.empty(self._step, np.intp)
        self._sums = _ClusterSums(p.clusters, self._step, self._dtype)

    def stages(self) -> Mapping[str, StageKernel]:
        """Return the kernels by stage."""
        return {
            "seed": self.seed,
            "assign": self.assign,
            "label": self.label,
            "result": self.result,
        }

    def _blocks(self, count: int) -> Iterator[slice]:
        return lloyd.row_blocks(count, self._step)

    def seed(
        self, rows: Rows, inputs: Arrays, outputs: Arrays, values: Values, partials: Arrays
    ) -> None:
        p, points, now = self._p, inputs["points"], values.now
        count = lloyd.seeds_so_far(p, now)
        if count == 0:
            self._check(points, rows)
            outputs["assigned"][...] = -1
        lloyd.fill_start(now, partials)
        if p.start == "given":
            if not np.isfinite(inputs["start"]).all():
                raise DataError("start: a centroid has a NaN or an infinite coordinate")
            for part in self._blocks(rows.count):
                self._distances(points[part], inputs["start"][0])  # raises if they overflow
                lloyd.widen(np, partials["extent"], points[part], inputs["start"][0])
            lloyd.write_centroids(p, partials, inputs["start"])
            return
        newest = lloyd.seeds(p, now)[count - 1].astype(p.dtype) if count else None
        key = stream_key(p.start_seed, count)
        best, index = np.inf, 0
        for part in self._blocks(rows.count):
            keys = exponential(np, key, rows.first + part.start, part.stop - part.start)
            if newest is not None:
                nearest = outputs["nearest"][part]
                self._approach(points[part], newest, nearest, is_first=count == 1)
                if count == 1:
                    lloyd.widen(np, partials["extent"], points[part], newest)
                with np.errstate(divide="ignore"):
                    keys /= nearest
            smallest = int(keys.argmin())
            if keys[smallest] < best:
                best, index = float(keys[smallest]), part.start + smallest
        lloyd.write_seed(p, now, partials, best, rows.first + index, points[index])

    def _check(self, points: np.ndarray, rows: Rows) -> None:
        for part in self._blocks(len(points)):
            is_finite = np.isfinite(points[part]).all(axis=1)
            if not is_finite.all():
                point = rows.first + part.start + int(is_finite.argmin())
                raise DataError(f"points: row {point} has a NaN or an infinite coordinate")

    def _approach(
        self, points: np.ndarray, seed: np.ndarray, nearest: np.ndarray, is_first: bool
    ) -> None:
        """Take the squared distances to a seed into account."""
        distances = self._distances(points, seed)
        if is_first:
            nearest[...] = distances
        else:
            np.minimum(nearest, distances, out=nearest)

    def _distances(self, points: np.ndarray, centroid: np.ndarray) -> np.ndarray:
        """Return the squared distances of a block. Raises DataError if scores may overflow."""
        difference = self._block[: len(points), :-1]
        with np.errstate(over="ignore"):
            np.subtract(points, centroid, out=difference)
            distances: np.ndarray = np.einsum("ij,ij->i", difference, difference)
        if not distances.max() <= lloyd.largest_distance(self._p):
            raise DataError(f"points: the distances overflow {self._p.dtype}; scale the points")
        return distances

    def assign(
        self, rows: Rows, inputs: Arrays, outputs: Arrays, values: Values, partials: Arrays
    ) -> None:
        p, former, labels = self._p, inputs["assigned"], outputs["assigned"]
        centroids = lloyd.next_centroids(p, values.before)
        lloyd.write_centroids(p, partials, centroids)
        members = partials["members"]
        members[...] = 0
        changed = 0
        for part, block in self._labelled(inputs["points"], centroids, labels):
            changed += int(np.count_nonzero(labels[part] != former[part]))
            self._add_members(labels[part], block, members)
        partials["changed"][...] = changed
        lloyd.fill_unused(partials["farthest"])
        if not members[:, -1].all():  # only then can a cluster have no points on any device
            self._farthest(rows, inputs["points"], labels, centroids, partials["farthest"])

    def _add_members(self, labels: np.ndarray, block: np.ndarray, members: np.ndarray) -> None:
        members += self._sums.of(labels, block)

    def _labelled(
        self, points: np.ndarray, centroids: np.ndarray, labels: np.ndarray
    ) -> Iterator[tuple[slice, np.ndarray]]:
        """Write the number of each point's nearest centroid; yield the shifted blocks."""
        origin = lloyd.origin(self._p, centroids)
        relative = centroids - origin
        weights = np.vstack((-2 * relative.T, np.square(relative).sum(axis=1))).astype(self._dtype)
        shift = origin.astype(self._dtype)
        for part in self._blocks(len(points)):
            size = part.stop - part.start
            block = self._block[:size]
            scores = self._scores[: size * self._p.clusters].reshape(size, -1)
            np.subtract(points[part], shift, out=block[:, :-1])
            np.matmul(block, weights, out=scores)
            labels[part] = scores.argmin(axis=1, out=self._labels[:size])
            yield part, block

    def _farthest(
        self,
        rows: Rows,
        points: np.ndarray,
        labels: np.ndarray,
        centroids: np.ndarray,
        farthest: np.ndarray,
    ) -> None:
        for part in self._blocks(rows.count):
            distances = _squared_distances(points[part], centroids[labels[part]])
            order = np.argsort(-distances, kind="stable")[: len(farthest)]
            candidates = np.empty((len(order), farthest.shape[1]))
            candidates[:, 0], candidates[:, 1] = distances[order], rows.first + part.start + order
            candidates[:, 2:] = points[part][order]
            farthest[...] = lloyd.merge_farthest((farthest, candidates))

    def label(
        self, rows: Rows, inputs: Arrays, outputs: Arrays, values: Values, partials: Arrays
    ) -> None:
        centroids, labels = lloyd.next_centroids(self._p, values.now), outputs["labels"]
        inertia = 0.0
        for part, _ in self._labelled(inputs["points"], centroids, labels):
            nearest = centroids[labels[part]]
            inertia += float(_squared_distances(inputs["points"][part], nearest).sum())
        partials["inertia"][...] = inertia

    def result(
        self, rows: Rows, inputs: Arrays, outputs: Arrays, values: Values, partials: Arrays
    ) -> None:
        if rows.is_first:
            outputs["centroids"][...] = lloyd.next_centroids(self._p, values.now)
            outputs["inertia"][...] = values.now["inertia"]


class _ClusterSums:
    """Sums of the rows of each cluster, by a sparse matrix for each size of block."""

    def __init__(self, clusters: int, step: int, dtype: np.dtype[Any]) -> None:
        self._clusters = clusters
        self._ones = np.ones(step, dtype)
        self._starts = np.arange(step + 1, dtype=np.int32)
        self._matrices: dict[int, Any] = {}

    def of(self, labels: np.ndarray, block: np.ndarray) -> np.ndarray:
        """Return the sums, (clusters, columns)."""
        size = len(labels)
        if size not in self._matrices:
            if len(self._matrices) > 1:  # at most a whole block and the last one
                self._matrices.clear()
            parts = (self._ones[:size], np.zeros(size, np.int32), self._starts[: size + 1])
            self._matrices[size] = csc_array(parts, shape=(self._clusters, size), copy=False)
        matrix = self._matrices[size]
        matrix.indices[...] = labels
        sums: np.ndarray = matrix @ block
        return sums


def _squared_distances(points: np.ndarray, centroids: np.ndarray) -> np.ndarray:
    difference = points - centroids
    distances: np.ndarray = np.einsum("ij,ij->i", difference, difference)
    return distances
