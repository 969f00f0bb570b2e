"""Small jobs of kmeans and heat, with each kind of start and border."""

from __future__ import annotations

from hetsched_workloads.heat import Heat, HeatParams
from hetsched_workloads.kmeans import KMeans, KMeansParams

CASES = {
    "kmeans": (KMeans(), KMeansParams(400, 5, 6, dtype="float64")),
    "kmeans-single": (KMeans(), KMeansParams(400, 5, 6)),
    "kmeans-given": (KMeans(), KMeansParams(100, 2, 6, start="given")),
    "heat": (Heat(), HeatParams("12x9", 20, border="dirichlet,neumann", tolerance=1e-9)),
    "heat-3d": (Heat(), HeatParams("6x5x4", 20, border="periodic", dtype="float64")),
}
