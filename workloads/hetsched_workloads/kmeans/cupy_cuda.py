"""k-means on a GPU: products of blocks with the centroids, and with the matrix of labels.

The sums of the clusters are a product with a dense matrix of labels: no atomic additions, so that
two runs give the same bits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import cupy as cp
import numpy as np

from hetsched.errors import DataError
from hetsched.workload import Arrays, KernelContext, Rows, StageKernel, Values
from hetsched_workloads.kmeans import lloyd
from hetsched_workloads.kmeans.declaration import KMeansParams
from hetsched_workloads.kmeans.variates import exponential, stream_key

BLOCK_BYTES = 32 << 20
"""Bytes of a block of scores: large enough for full speed. Several temporary arrays of a block fit
together into the device's pool for them."""


def make(p: KMeansParams, load: int, context: KernelContext) -> Mapping[str, StageKernel]:
    """Return the kernels by stage. Values and partials are on the host."""
    kernels = _GpuKernels(p)
    return {
        "seed": kernels.seed,
        "assign": kernels.assign,
        "label": kernels.label,
        "result": kernels.result,
    }


class _GpuKernels:
    def __init__(self, p: KMeansParams) -> None:
        self._p = p
        row_bytes = max(p.clusters, p.dimensions + 1) * np.dtype(p.dtype).itemsize
        row_bytes = max(row_bytes, 8 * p.dimensions)  # squares are in double precision
        self._step = max(1, BLOCK_BYTES // row_bytes)

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
            start = cp.asnumpy(inputs["start"])
            if not np.isfinite(start).all():
                raise DataError("start: a centroid has a NaN or an infinite coordinate")
            for part in self._blocks(rows.count):
                lloyd.widen(cp, partials["extent"], points[part], inputs["start"][0])
                self._check_distances(cp.square(points[part] - inputs["start"][0]).sum(axis=1))
            lloyd.write_centroids(p, partials, start)
            return
        key, index = self._draw(points, now, count, rows, outputs["nearest"], partials["extent"])
        point = cp.asnumpy(points[index])
        lloyd.write_seed(p, now, partials, key, rows.first + index, point)

    def _draw(
        self, points: Any, now: Any, count: int, rows: Rows, nearest: Any, extent: Any
    ) -> tuple[float, int]:
        """Return the smallest key and its point."""
        stream = stream_key(self._p.start_seed, count)
        if count:
            newest = cp.asarray(lloyd.seeds(self._p, now)[count - 1].astype(self._p.dtype))
            self._approach(points, newest, nearest, is_first=count == 1)
            if count == 1:
                for part in self._blocks(rows.count):
                    lloyd.widen(cp, extent, points[part], newest)
        smallest = []
        for part in self._blocks(rows.count):
            keys = exponential(cp, stream, rows.first + part.start, part.stop - part.start)
            if count:
                keys /= nearest[part]
            index = int(keys.argmin())
            smallest.append((float(keys[index]), part.start + index))
        return min(smallest)

    def _approach(self, points: Any, seed: Any, nearest: Any, is_first: bool) -> None:
        """Take the squared distances to a seed into account."""
        for part in self._blocks(len(points)):
            distances = cp.square(points[part] - seed).sum(axis=1)
            if is_first:
                nearest[part] = distances
            else:
                cp.minimum(nearest[part], distances, out=nearest[part])
        if is_first:
            self._check_distances(nearest)

    def _check_distances(self, squares: Any) -> None:
        if not bool((squares <= lloyd.largest_distance(self._p)).all()):
            raise DataError(f"points: the distances overflow {self._p.dtype}; scale the points")

    def assign(
        self, rows: Rows, inputs: Arrays, outputs: Arrays, values: Values, partials: Arrays
    ) -> None:
        p, labels, points = self._p, outputs["assigned"], inputs["points"]
        centroids = lloyd.next_centroids(p, values.before)
        lloyd.write_centroids(p, partials, centroids)
        sums = cp.zeros((p.clusters, p.dimensions + 1), cp.float64)
        clusters = cp.arange(p.clusters, dtype=labels.dtype)[:, None]
        changed = 0
        for part, block in self._labelled(points, centroids, labels):
            changed += int(cp.count_nonzero(labels[part] != inputs["assigned"][part]))
            belongs = (labels[part] == clusters).astype(block.dtype)
            sums[:, :-1] += belongs @ block
            sums[:, -1] += belongs.sum(axis=1, dtype=cp.float64)
        partials["members"][...] = cp.asnumpy(sums)
        partials["changed"][...] = changed
        lloyd.fill_unused(partials["farthest"])
        if not partials["members"][:, -1].all():
            self._farthest(rows, points, labels, centroids, partials["farthest"])

    def _labelled(self, points: Any, centroids: np.ndarray, labels: Any) -> Iterator[Any]:
        """Write the number of each point's nearest centroid; yield (part, shifted block)."""
        origin = lloyd.origin(self._p, centroids)
        relative = centroids - origin
        weights = cp.asarray((-2 * relative.T).astype(self._p.dtype))
        squares = cp.asarray(np.square(relative).sum(axis=1).astype(self._p.dtype))
        shift = cp.asarray(origin.astype(self._p.dtype))
        for part in self._blocks(len(points)):
            block = points[part] - shift
            scores = block @ weights
            scores += squares
            labels[part] = scores.argmin(axis=1)
            yield part, block

    def _squares(self, points: Any, centroids: Any, labels: Any) -> Any:
        """Return the squared distances from the labelled centroids, in double precision."""
        return cp.square(points - centroids[labels]).sum(axis=1)

    def _farthest(
        self, rows: Rows, points: Any, labels: Any, centroids: np.ndarray, farthest: np.ndarray
    ) -> None:
        on_gpu = cp.asarray(centroids)
        for part in self._blocks(rows.count):
            squares = cp.asnumpy(self._squares(points[part], on_gpu, labels[part]))
            order = np.argsort(-squares, kind="stable")[: len(farthest)]
            candidates = np.empty((len(order), farthest.shape[1]))
            candidates[:, 0], candidates[:, 1] = squares[order], rows.first + part.start + order
            candidates[:, 2:] = cp.asnumpy(points[part][cp.asarray(order)])
            farthest[...] = lloyd.merge_farthest((farthest, candidates))

    def label(
        self, rows: Rows, inputs: Arrays, outputs: Arrays, values: Values, partials: Arrays
    ) -> None:
        centroids = lloyd.next_centroids(self._p, values.now)
        on_gpu, points, labels = cp.asarray(centroids), inputs["points"], outputs["labels"]
        inertia = 0.0
        for part, _ in self._labelled(points, centroids, labels):
            inertia += float(self._squares(points[part], on_gpu, labels[part]).sum())
        partials["inertia"][...] = inertia

    def result(
        self, rows: Rows, inputs: Arrays, outputs: Arrays, values: Values, partials: Arrays
    ) -> None:
        if rows.is_first:
            outputs["centroids"][...] = cp.asarray(lloyd.next_centroids(self._p, values.now))
            outputs["inertia"][...] = float(values.now["inertia"])

    def _check(self, points: Any, rows: Rows) -> None:
        for part in self._blocks(rows.count):
            is_finite = cp.isfinite(points[part]).all(axis=1)
            if not bool(is_finite.all()):
                point = rows.first + part.start + int(is_finite.argmin())
                raise DataError(f"points: row {point} has a NaN or an infinite coordinate")
