"""A lid-driven cavity until it is steady, compared with the tables of Ghia, Ghia & Shin (1982).

python -m benchmarks cavity

Their grid has 129 x 129 points, those on the walls included: 128 cells lie between them. Flows of
128 cells run until they are steady. With 129, populations keep an oscillation with a period of two
steps (0.07 % of the lid's speed with 33): they run for as many steps as those of 128 cells.
"""

from __future__ import annotations

import numpy as np

import hetsched
from benchmarks.cavity_tables import X_LEFT_OUT, deviation, velocity_across
from benchmarks.results import Bar, Result
from benchmarks.serving import daemon

CELLS, QUICK_CELLS = 128, 32
SPEED = 0.1
TOLERANCE = 1e-9
"""The largest change of a population in a step, over the lid's speed, when the flow is steady.
Arbitrary, small beside 1 % even after the 10^5 steps in which slow changes decay."""
MAX_STEPS = 2_000_000
MAX_DEVIATION, MAX_QUICK_DEVIATION = 0.01, 0.06
MAX_MASS_CHANGE = 1e-10


def measure(quick: bool) -> Result:
    columns = (
        "Reynolds number",
        "cells",
        "steps",
        "largest deviation, % of the lid's speed",
        "change of mass, relative",
        f"velocity across at x = {X_LEFT_OUT}",
        "seconds",
    )
    result = Result("cavity", "Lid-driven cavity", columns)
    n = QUICK_CELLS if quick else CELLS
    with daemon() as served:
        for reynolds in (100, 400):
            steps = one_flow(result, served.client, reynolds, n, MAX_STEPS, TOLERANCE)
            one_flow(result, served.client, reynolds, n + 1, steps, 0.0)
    return result


def one_flow(
    result: Result,
    client: hetsched.Client,
    reynolds: int,
    n: int,
    steps: int,
    tolerance: float,
) -> int:
    """Compute and compare one flow; return how many steps it took."""
    flow = client.submit(
        "lbm",
        rows=n,
        cols=n,
        reynolds=reynolds,
        speed=SPEED,
        steps=steps,
        tolerance=tolerance,
    ).result()
    if tolerance and flow.iterations == steps:
        raise RuntimeError(f"Re = {reynolds}: not steady after {steps} steps")
    velocity, density = np.asarray(flow.velocity), np.asarray(flow.density)
    case = {
        "reynolds": reynolds,
        "cells": n,
        "steps": flow.iterations,
        "deviation": deviation(velocity, SPEED, reynolds),
        "mass": abs(float((density - 1).sum())) / density.size,
        "left_out": velocity_across(velocity, SPEED, X_LEFT_OUT),
        "seconds": flow.seconds,
    }
    add(result, case)
    return int(flow.iterations)


def add(result: Result, case: dict[str, float]) -> None:
    result.data.append(dict(case))
    result.rows.append(
        (
            str(case["reynolds"]),
            f"{case['cells']} x {case['cells']}",
            str(case["steps"]),
            f"{100 * case['deviation']:.2f}",
            f"{case['mass']:.1e}",
            f"{case['left_out']:.4f}",
            f"{case['seconds']:.1f}",
        )
    )
    limit = MAX_DEVIATION if case["cells"] >= CELLS else MAX_QUICK_DEVIATION
    name = f"Re = {case['reynolds']}, {case['cells']} cells"
    result.bars += [
        Bar(f"{name}: largest deviation", case["deviation"], limit, at_least=False),
        Bar(f"{name}: change of mass", case["mass"], MAX_MASS_CHANGE, at_least=False),
    ]
