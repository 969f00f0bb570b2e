"""k-means by products of blocks of points with the centroids, for NumPy's arrays or CuPy's.

A block is shifted by the first centroid and gets a column of ones: |x - c|^2 - |x|^2 =
c.c - 2 x.c is one product with the matrix of centroids, without cancellation even if all points
are far from the origin, and the sums of a cluster's rows contain their number. The matrix of
labels times the block is that sum: for SciPy a sparse matrix that has one 1 per column, on a GPU
a dense one, without atomic additions, so that two runs give the same bits.

Reductions, all float64:

* centroids (clusters + 1, max(dimensions, 3)): those that this iteration compares points with; in
  the last row, at the start, (seeds so far, key of the newest, its point).
* members (clusters, dimensions + 1): sums of the points of each cluster, relative to the first
  centroid (`origin_of`), and their number. All zero after the start.
* extent (): largest difference of a point's coordinate and the first seed's; see `check_extent`.
* changed (): points whose label differs from that of the previous iteration.
* farthest (moved, dimensions + 2): points far from their centroid: square of the distance, number,
  coordinates; unused rows are zero. Only complete if a cluster has no points.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from hetsched.errors import DataError
from hetsched.workload import Arrays, KernelContext, Rows, StageCall, StageKernel
from hetsched.workload.streams import fill_units, unit_streams
from hetsched_workloads.kmeans import KMeansParams
from hetsched_workloads.vectors import first_true

CORE_BLOCK_BYTES, GPU_BLOCK_BYTES = 1 << 20, 32 << 20
"""Bytes of a block of scores: about a core's second-level cache. On a GPU large enough for full
speed; several temporary arrays of a block fit together into the device's pool for them."""
MIN_BLOCK = 64
"""Points: with fewer, products with the centroids are slow."""
SEPARATION = 4.0
"""Standard deviation of the centres of the generated clusters; their points have 1."""
CHECKED_BYTES = 1 << 22
"""Of the distances that are checked at a time."""
TOLERANCE = 32.0
"""Roundings of the squares of coordinates by which a label may be wrong."""

Named = Mapping[str, np.ndarray]


def make(p: KMeansParams, load: int, context: KernelContext) -> Mapping[str, StageKernel]:
    size = CORE_BLOCK_BYTES if context.xp is np else GPU_BLOCK_BYTES
    return LloydKernels(p, load, context.xp, size).stages()


class LloydKernels:
    """The kernels; a subclass may label and sum up points in another way."""

    def __init__(self, p: KMeansParams, load: int, xp: Any, block_bytes: int) -> None:
        from scipy.sparse import csc_array  # here: an engine needs the reductions only

        self._p = p
        self._xp = xp
        self._dtype = np.dtype(p.dtype)
        row_bytes = max(p.clusters, p.dimensions + 1) * self._dtype.itemsize
        self._step = max(1, min(load, max(MIN_BLOCK, block_bytes // row_bytes)))
        self._block = xp.ones((self._step, p.dimensions + 1), p.dtype)
        self._scores = xp.empty(self._step * p.clusters, p.dtype)
        self._csc_array = csc_array
        # Of whole blocks and the last one: to make one takes as long as half of its product.
        self._label_matrix = functools.lru_cache(maxsize=2)(self._make_label_matrix)

    def stages(self) -> Mapping[str, StageKernel]:
        return {
            "seed": self.seed,
            "assign": self.assign,
            "label": self.label,
            "result": self.result,
        }

    def _blocks(self, count: int) -> Iterator[slice]:
        for first in range(0, count, self._step):
            yield slice(first, min(first + self._step, count))

    def _host(self, array: Any) -> np.ndarray:
        return np.asarray(array if self._xp is np else self._xp.asnumpy(array))

    def seed(self, call: StageCall) -> None:
        p, xp, rows, now, partials = self._p, self._xp, call.rows, call.values.now, call.partials
        points, is_given = call.inputs["points"], False
        count = int(now["centroids"][p.clusters, 0]) if "centroids" in now else 0
        if count == 0:
            self._check(points, rows)
            call.outputs["assigned"][...] = -1
        partials["extent"][...] = now.get("extent", 0)
        newest = None
        if p.start == "given":
            is_given, start = True, self._host(call.inputs["start"])
            if not np.isfinite(start).all():
                raise DataError("start: a centroid has a NaN or an infinite coordinate")
            write_centroids(p, partials, start)
            newest = xp.asarray(start[0].astype(p.dtype))
        elif count:
            newest = xp.asarray(seeds(p, now)[count - 1].astype(p.dtype))
        key, best = stream_key(p.start_seed, count), (np.inf, 0)
        for part in self._blocks(rows.count):
            nearest = call.outputs["nearest"][part]
            if newest is not None:
                is_first = is_given or count == 1
                self._approach(points[part], newest, nearest, partials["extent"], is_first)
            if not is_given:
                keys = exponential(xp, key, rows.first + part.start, part.stop - part.start)
                if count:
                    keys /= nearest
                index = int(keys.argmin())
                best = min(best, (float(keys[index]), part.start + index))
        if not is_given:  # a candidate for the next seed
            table = partials["centroids"]
            if count:
                table[...] = now["centroids"]
            table[count, : p.dimensions] = self._host(points[best[1]])
            table[p.clusters, :3] = count + 1, best[0], rows.first + best[1]

    def _check(self, points: Any, rows: Rows) -> None:
        for part in self._blocks(rows.count):
            bad = ~self._xp.isfinite(points[part]).all(axis=1)
            if (index := first_true(self._xp, bad)) is not None:
                point = rows.first + part.start + index
                raise DataError(f"points: row {point} has a NaN or an infinite coordinate")

    def _approach(
        self, points: Any, seed: Any, nearest: Any, extent: np.ndarray, is_first: bool
    ) -> None:
        """Take the squared distances to a seed into account."""
        xp, difference = self._xp, self._block[: len(points), :-1]
        xp.subtract(points, seed, out=difference)
        squares = xp.einsum("ij,ij->i", difference, difference)
        if not is_first:
            xp.minimum(nearest, squares, out=nearest)
            return
        if not bool((squares <= largest_distance(self._p)).all()):
            raise DataError(f"points: the distances overflow {self._p.dtype}; scale the points")
        nearest[...] = squares
        extent[...] = max(float(extent), float(xp.abs(difference).max()))

    def assign(self, call: StageCall) -> None:
        p, points, partials = self._p, call.inputs["points"], call.partials
        labels, former = call.outputs["assigned"], call.inputs["assigned"]
        centroids = next_centroids(p, call.values.before)
        write_centroids(p, partials, centroids)
        sums = self._xp.zeros((p.clusters, p.dimensions + 1))
        partials["changed"][...] = self._nearest(points, centroids, labels, former, sums)
        partials["members"][...] = self._host(sums)
        # Only then can a cluster have no points on any device.
        if not partials["members"][:, -1].all():
            self._farthest(call.rows, points, labels, centroids, partials["farthest"])

    def _nearest(
        self, points: Any, centroids: np.ndarray, labels: Any, former: Any, sums: Any
    ) -> int:
        """Write the number of each point's nearest centroid.

        With `sums`, add up the shifted points of each cluster and their number, and return how
        many labels differ from the `former` ones.
        """
        xp, changed = self._xp, 0
        origin = origin_of(self._p, centroids)
        relative = centroids - origin
        weights = np.vstack((-2 * relative.T, np.square(relative).sum(axis=1)))
        weights, shift = xp.asarray(weights.astype(self._dtype)), xp.asarray(origin, self._dtype)
        for part in self._blocks(len(points)):
            size = part.stop - part.start
            block = self._block[:size]
            scores = self._scores[: size * self._p.clusters].reshape(size, -1)
            xp.subtract(points[part], shift, out=block[:, :-1])
            xp.matmul(block, weights, out=scores)
            labels[part] = scores.argmin(axis=1)
            if sums is not None:
                changed += int(xp.count_nonzero(labels[part] != former[part]))
                sums += self._sums_of(labels[part], block)
        return changed

    def _sums_of(self, labels: Any, block: Any) -> Any:
        clusters, size = self._p.clusters, len(labels)
        if self._xp is not np:
            belongs = labels == self._xp.arange(clusters, dtype=labels.dtype)[:, None]
            return belongs.astype(block.dtype) @ block
        matrix = self._label_matrix(size)
        matrix.indices[...] = labels
        return matrix @ block

    def _make_label_matrix(self, size: int) -> Any:
        ones, zeros = np.ones(size, self._dtype), np.zeros(size, np.int32)
        parts = ones, zeros, np.arange(size + 1, dtype=np.int32)
        return self._csc_array(parts, shape=(self._p.clusters, size))

    def _squares(self, points: Any, centroids: Any, labels: Any) -> Any:
        difference = points - centroids[labels]
        return self._xp.einsum("ij,ij->i", difference, difference)

    def _farthest(
        self, rows: Rows, points: Any, labels: Any, centroids: np.ndarray, farthest: np.ndarray
    ) -> None:
        xp, centres = self._xp, self._xp.asarray(centroids)
        for part in self._blocks(rows.count):
            squares = self._host(self._squares(points[part], centres, labels[part]))
            order = np.argsort(-squares, kind="stable")[: len(farthest)]
            candidates = np.empty((len(order), farthest.shape[1]))
            candidates[:, 0], candidates[:, 1] = squares[order], rows.first + part.start + order
            candidates[:, 2:] = self._host(points[part][xp.asarray(order)])
            farthest[...] = merge_farthest((farthest, candidates))

    def label(self, call: StageCall) -> None:
        centroids = next_centroids(self._p, call.values.now)
        points, labels = call.inputs["points"], call.outputs["labels"]
        self._nearest(points, centroids, labels, None, None)
        centres, blocks = self._xp.asarray(centroids), self._blocks(len(points))
        squares = (self._squares(points[part], centres, labels[part]) for part in blocks)
        call.partials["inertia"][...] = sum(float(each.sum()) for each in squares)

    def result(self, call: StageCall) -> None:
        if call.rows.is_first:
            centroids = next_centroids(self._p, call.values.now)
            call.outputs["centroids"][...] = self._xp.asarray(centroids)
            call.outputs["inertia"][...] = float(call.values.now["inertia"])


# ---- the small part that every device computes for itself: the centroids


def seeds(p: Any, values: Named) -> np.ndarray:
    """Return the centroids, (clusters, dimensions); rows without a seed are undefined."""
    return values["centroids"][: p.clusters, : p.dimensions]


def origin_of(p: Any, centroids: np.ndarray) -> np.ndarray:
    """Return the first centroid as far as the points' dtype can represent it, in float64."""
    return np.asarray(centroids[0].astype(p.dtype), np.float64)


def largest_distance(p: Any) -> float:
    """Return the largest squared distance of a point from the first centroid at the start.

    Of points within R of it, |c|^2 - 2 x.c is at most 12 R^2, wherever the first centroid moves.
    """
    return float(np.finfo(p.dtype).max) / 16


def check_extent(p: Any, values: Named) -> None:
    """Raise DataError if squared distances underflow, in which no cluster can be told."""
    smallest = float(np.finfo(p.dtype).smallest_normal) ** 0.5
    if 0 < values["extent"] < smallest:
        raise DataError(f"points: the distances underflow {p.dtype}; scale the points")


def next_centroids(p: Any, values: Named) -> np.ndarray:
    """Return the centroids that follow from an iteration, or the seeds after the start.

    Means of the clusters; a cluster without points gets one of the farthest points instead, or
    stays where it is if all points coincide with centroids.
    """
    former = seeds(p, values)
    sums, counts = values["members"][:, :-1], values["members"][:, -1]
    centroids = former.copy()
    if not counts.any():
        return centroids
    has_points = counts > 0
    means = sums[has_points] / counts[has_points, np.newaxis]
    centroids[has_points] = origin_of(p, former) + means
    far = [row[2:] for row in values["farthest"] if row[0] > 0]
    for cluster, point in zip(np.flatnonzero(~has_points), far, strict=False):
        centroids[cluster] = point
    return centroids


def relative_move(p: Any, values: Named) -> float:
    """Return the rms move of the centroids after an iteration over the rms distance of their mean.

    Of centroids that coincide: 1 if they move, else 0.
    """
    new = next_centroids(p, values)
    move = float(np.square(new - seeds(p, values)).sum())
    spread = float(np.square(new - new.mean(axis=0)).sum())
    if move == 0 or spread == 0:
        return float(move > 0)
    return float(np.sqrt(move / spread))


def first_seed(parts: Sequence[np.ndarray]) -> np.ndarray:
    """Return the table with the smallest key; of equal ones, that of the lowest point."""
    return min(parts, key=lambda table: (table[-1, 1], table[-1, 2]))


def merge_farthest(parts: Sequence[np.ndarray]) -> np.ndarray:
    rows = np.concatenate(parts)
    order = np.lexsort((rows[:, 1], -rows[:, 0]))
    merged: np.ndarray = rows[order[: len(parts[0])]]
    return merged


def write_centroids(p: Any, partials: Named, centroids: np.ndarray) -> None:
    """Write the table of an iteration, the same on all devices."""
    table = partials["centroids"]
    table[: p.clusters, : p.dimensions] = centroids
    table[p.clusters, 0] = p.clusters


# ---- Points are drawn by a race: with an exponential variate E of each, the point with the
# smallest E / w is drawn with a probability proportional to w, whatever the split.


def stream_key(seed: int, number: int) -> int:
    return int(np.random.SeedSequence((seed, number)).generate_state(1, np.uint64)[0])


def exponential(xp: Any, key: int, first: int, count: int) -> Any:
    """Return the variates of the points from `first` on, (count,) float64, all above 0.

    Bits: SplitMix64 with the point as counter (Steele, Lea & Flood, OOPSLA 2014).
    """
    bits = xp.arange(first + 1, first + 1 + count, dtype=xp.uint64)
    bits *= xp.uint64(0x9E3779B97F4A7C15)
    bits += xp.uint64(key)
    bits ^= bits >> xp.uint64(30)
    bits *= xp.uint64(0xBF58476D1CE4E5B9)
    bits ^= bits >> xp.uint64(27)
    bits *= xp.uint64(0x94D049BB133111EB)
    bits ^= bits >> xp.uint64(31)
    uniform = (bits >> xp.uint64(11)).astype(xp.float64)
    uniform += 0.5
    uniform *= 2.0**-53
    return -xp.log(uniform)


# ---- test data, and the check of every row


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
    from scipy.spatial.distance import cdist

    points, labels, centroids = inputs["points"], outputs["labels"], outputs["centroids"]
    eps = float(np.finfo(points.dtype).eps)
    size = np.square(centroids - centroids[0]).sum(axis=1).max()
    excess = np.empty(rows.count)
    step = max(1, CHECKED_BYTES // (8 * p.clusters))
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
    step = max(1, CHECKED_BYTES // (8 * points.shape[1]))
    total = 0.0
    for first in range(0, len(points), step):
        part = slice(first, first + step)
        nearest = centroids[np.clip(labels[part], 0, len(centroids) - 1)]
        total += float(np.square(points[part] - nearest).sum())
    size = float(np.square(centroids).sum(axis=1).max()) * len(points)
    return bool(abs(total - outputs["inertia"][0]) <= 1e-9 * total + 1e-13 * size)
