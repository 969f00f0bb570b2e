"""The workload `kmeans`: Lloyd's k-means; a row is a point. No NumPy in here.

Start: k-means++ (Arthur & Vassilvitskii, SODA 2007), one round per centroid. Iteration: each point
goes to its nearest centroid; the next iteration starts from the means (Lloyd, IEEE Trans. Inf.
Theory 28(2), 1982). A centroid without points moves to one of the points farthest from theirs. The
end assigns the points once more, so that labels, centroids and inertia belong together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from hetsched.errors import DataError, UsageError
from hetsched.workload import ArraySpec, Reduction, Stage, StateArray, Values
from hetsched_workloads.declarations import DTYPES, Shapes, Solver

MAX_MOVED = 8
"""Centroids without points that are moved in one iteration; the others wait. Arbitrary."""


class KMeansParams(msgspec.Struct, frozen=True):
    count: Annotated[int, Meta(description="number of points")]
    dimensions: Annotated[int, Meta(description="coordinates of a point")]
    clusters: Annotated[int, Meta(description="number of clusters")]
    tolerance: Annotated[
        float,
        Meta(ge=0, lt=1, description="stop at this rms move of centroids over their spread"),
    ] = 1e-4
    max_iterations: Annotated[int, Meta(ge=1, description="iterations at most")] = 300
    start: Annotated[
        Literal["k-means++", "given"],
        Meta(description="k-means++, or given: the centroids of input start"),
    ] = "k-means++"
    start_seed: Annotated[int, Meta(ge=0, description="random seed of k-means++")] = 0
    dtype: Annotated[str, Meta(description=DTYPES.description)] = DTYPES.single.name


class KMeans(Solver):
    """Clusters of points by k-means; one row is one point.

    Outputs: labels (count,), centroids (clusters, dimensions), inertia (1,).
    """

    name = "kmeans"
    package = "hetsched_workloads.kmeans"
    libraries = {"numba": "compiled", "numpy": "kernels", "cupy": "kernels"}
    Params = KMeansParams
    inputs = ("points", "start")
    optional_inputs = ("start",)
    axes = {"points": ("count", "dimensions"), "start": ("clusters", "dimensions")}

    def load(self, p: KMeansParams) -> int:
        count = super().load(p)
        if p.clusters > count:
            raise DataError(f"clusters: {p.clusters}, but there are only {count} points")
        return count

    def arrays(self, p: KMeansParams) -> Sequence[ArraySpec]:
        points = ArraySpec("points", "split", (p.dimensions,), p.dtype)
        start = ArraySpec("start", "resident", (p.clusters, p.dimensions), "float64")
        return (
            *((points, start) if p.start == "given" else (points,)),
            ArraySpec("labels", "out", (), "int32"),
            ArraySpec("centroids", "whole-out", (p.clusters, p.dimensions), "float64"),
            ArraySpec("inertia", "whole-out", (1,), "float64"),
        )

    def state(self, p: KMeansParams) -> Sequence[StateArray]:
        """Return the square of each point's distance to its nearest seed, and its last label."""
        return (
            StateArray("nearest", (), p.dtype, has_two_buffers=False),
            StateArray("assigned", (), "int32"),
        )

    def reductions(self, p: KMeansParams) -> Sequence[Reduction]:
        """Return them; `kernels` explains what they contain."""
        from hetsched_workloads.kmeans import kernels

        moved, table = min(p.clusters, MAX_MOVED), (p.clusters + 1, max(p.dimensions, 3))
        return (
            Reduction("centroids", table, combine=kernels.first_seed),
            Reduction("members", (p.clusters, p.dimensions + 1)),
            Reduction("changed"),
            Reduction("extent", combine="max"),
            Reduction("farthest", (moved, p.dimensions + 2), combine=kernels.merge_farthest),
            Reduction("inertia"),
        )

    def start(self, p: KMeansParams) -> Sequence[Stage]:
        inputs = ("points", "nearest", *(("start",) if p.start == "given" else ()))
        reductions = ("centroids", "members", "changed", "farthest", "extent")
        return (Stage("seed", inputs, ("nearest", "assigned"), reductions),)

    def start_rounds(self, p: KMeansParams) -> int:
        return p.clusters if p.start == "k-means++" else 1

    def iteration(self, p: KMeansParams) -> Sequence[Stage]:
        reductions = ("centroids", "members", "changed", "farthest")
        return (Stage("assign", ("points", "assigned"), ("assigned",), reductions),)

    def finish(self, p: KMeansParams) -> Sequence[Stage]:
        return (
            Stage("label", ("points",), ("labels",), ("inertia",)),
            Stage("result", (), ("centroids", "inertia")),
        )

    def max_iterations(self, p: KMeansParams) -> int:
        return p.max_iterations

    def converged(self, p: KMeansParams, values: Values) -> bool:
        from hetsched_workloads.kmeans import kernels

        kernels.check_extent(p, values.now)
        if values.now["changed"] == 0:
            return True
        return bool(p.tolerance > 0 and self.residual(p, values) <= p.tolerance)

    def must_converge(self, p: KMeansParams) -> bool:
        return False  # clusters are useful before Lloyd's iteration has come to rest

    def residual(self, p: KMeansParams, values: Values) -> float:
        """Return the rms move of the centroids over the rms distance from their mean."""
        from hetsched_workloads.kmeans import kernels

        return kernels.relative_move(p, values.now)

    def flops(self, p: KMeansParams, x: int) -> float:
        return float(x) * (2 * p.clusters * p.dimensions + 2 * p.clusters + 3 * p.dimensions)

    def infer(self, explicit: Mapping[str, Any], arrays: Shapes) -> KMeansParams:
        """Take the dtype from the points only: `start` is in double precision."""
        full = dict(explicit)
        fitting = DTYPES.fitting(arrays["points"][1]) if "points" in arrays else None
        if full.get("dtype") is None:
            full["dtype"] = (fitting or DTYPES.single).name
        if "start" in arrays and full.get("start") is None:
            full["start"] = "given"
        params: KMeansParams = super().infer(full, arrays)
        return params

    def resized(self, p: KMeansParams, load: int) -> KMeansParams:
        """Return `p` for `load` points. Raises UsageError for fewer points than clusters."""
        if load < p.clusters:
            raise UsageError(f"kmeans needs at least as many points as clusters, {p.clusters}")
        return msgspec.structs.replace(p, count=load)
