"""The small part of k-means that every device computes for itself: the centroids.

Reductions, all float64:

* centroids (clusters + 1, max(dimensions, 3)): those that this iteration compares points with; in
  the last row, at the start, (seeds so far, key of the newest, its point).
* members (clusters, dimensions + 1): sums of the points of each cluster, relative to the first
  centroid (`origin`), and their number. All zero after the start.
* extent (): largest difference of a point's coordinate and the first seed's; see `check_extent`.
* changed (): points whose label differs from that of the previous iteration.
* farthest (moved, dimensions + 2): points far from their centroid: square of the distance, number,
  coordinates; unused rows are zero. Only complete if a cluster has no points.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hetsched.errors import DataError

Named = Mapping[str, np.ndarray]


def seeds_so_far(p: Any, values: Named) -> int:
    return int(values["centroids"][p.clusters, 0]) if "centroids" in values else 0


def seeds(p: Any, values: Named) -> np.ndarray:
    """Return the centroids, (clusters, dimensions); rows without a seed are undefined."""
    return values["centroids"][: p.clusters, : p.dimensions]


def origin(p: Any, centroids: np.ndarray) -> np.ndarray:
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
    centroids[has_points] = origin(p, former) + sums[has_points] / counts[has_points, np.newaxis]
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
