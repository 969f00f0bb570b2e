"""Small jobs of kmeans, heat and lbm, with each kind of start and border."""

from __future__ import annotations

from hetsched_workloads.heat import Heat, HeatParams
from hetsched_workloads.kmeans import KMeans, KMeansParams
from hetsched_workloads.lbm import Lbm, LbmParams

CASES = {
    "kmeans": (KMeans(), KMeansParams(400, 5, 6, dtype="float64")),
    "kmeans-single": (KMeans(), KMeansParams(400, 5, 6)),
    "kmeans-given": (KMeans(), KMeansParams(100, 2, 6, start="given")),
    "heat": (Heat(), HeatParams("12x9", 20, border="dirichlet,neumann", tolerance=1e-9)),
    "heat-3d": (Heat(), HeatParams("6x5x4", 20, border="periodic", dtype="float64")),
    "cavity": (Lbm(), LbmParams(9, 8, steps=50, tolerance=1e-9)),
    "channel": (Lbm(), LbmParams(16, 20, "channel", 10, steps=50, has_mask=True)),
}
