"""k-means by scikit-learn, which uses all cores, from given centroids."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import sklearn.cluster
import sklearn.exceptions

from benchmarks.solver_systems import cloud


def make(case: dict[str, Any]) -> tuple[Callable[[], None], Callable[[], float]]:
    warnings.simplefilter("ignore", sklearn.exceptions.ConvergenceWarning)
    points = cloud(case["count"], 16, case["dtype"])
    model = sklearn.cluster.KMeans(
        64, init=points[:64].copy(), n_init=1, max_iter=case["iterations"], tol=0, copy_x=False
    )

    def run() -> None:
        model.fit(points)
        assert model.n_iter_ == case["iterations"]

    def check() -> float:
        nearest = model.cluster_centers_[model.labels_]
        inertia = np.square(points - nearest, dtype=np.float64).sum()
        return float(abs(model.inertia_ / inertia - 1))

    return run, check
