"""`smooth` against SciPy's `hybr` (the paper's HYBRJ): its fallback costs nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.optimize import root

from hetsched.models import Akima
from hetsched.partition import geometric
from hetsched.partition.distribution import predict
from hetsched.partition.rounding import round_greedy
from hetsched.partition.smooth import MIN_SHARE, solve

LOAD, CASES = 2000, 40


def machine(kind: str, rng: np.random.Generator) -> list[Akima]:
    """Devices whose speed is a sawtooth, or falls off a cliff."""
    curves = []
    for _ in range(int(rng.integers(2, 7))):
        speed = rng.uniform(50, 500)
        x = np.unique(np.round(np.geomspace(LOAD / 200, LOAD, int(rng.integers(8, 25)))))
        if kind == "sawtooth":
            period, depth = rng.uniform(0.05, 0.3) * LOAD, rng.uniform(0.1, 0.5)
            speeds = speed * (1 - depth * (x % period) / period)
        else:
            edge, factor, width = rng.uniform(0.1, 0.6) * LOAD, rng.uniform(2, 5), 0.1
            fallen = np.clip((x / edge - 1) / width, 0, 1)
            speeds = speed * (1 - (1 - 1 / factor) * fallen)
        curves.append(Akima(zip(x, x / speeds, strict=True), load=LOAD))
    return curves


def solved_by_hybr(models: list[Akima]) -> float | None:
    """Return the makespan of hybr's root in whole units; None if it finds none."""

    def equations(x: Any) -> Any:
        times = [float(m.time(max(u, MIN_SHARE))) for m, u in zip(models, x, strict=True)]
        return [LOAD - x.sum(), *(time - times[0] for time in times[1:])]

    def jacobian(x: Any) -> Any:
        slopes = [float(m.derivative(max(u, MIN_SHARE))) for m, u in zip(models, x, strict=True)]
        matrix = np.diag(slopes)
        matrix[0], matrix[1:, 0] = -1.0, -slopes[0]
        return matrix

    start = np.full(len(models), LOAD / len(models))
    found = root(equations, start, jac=jacobian, method="hybr")
    if not found.success or not ((found.x >= 0) & (found.x <= LOAD)).all():
        return None
    parts = np.maximum(found.x - MIN_SHARE, 0.0).tolist()
    return predict(models, round_greedy(models, parts, LOAD)).makespan


@pytest.mark.parametrize("kind", ["sawtooth", "cliff"])
def test_where_newton_finds_no_root_geometric_is_as_fast_as_hybr(kind: str) -> None:
    rng = np.random.default_rng(1)
    machines = [machine(kind, rng) for _ in range(CASES)]
    failing = [m for m in machines if solve(m, LOAD, [LOAD] * len(m)).reason]

    ratios = [
        geometric(m, LOAD).makespan / seconds for m in failing if (seconds := solved_by_hybr(m))
    ]

    assert ratios
    assert max(ratios) <= 1 + 1e-9
