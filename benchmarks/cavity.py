"""A lid-driven cavity until it is steady, compared with the tables of Ghia, Ghia & Shin (1982).

python -m benchmarks cavity
"""

from __future__ import annotations

import numpy as np

from benchmarks.cavity_tables import X_LEFT_OUT, deviation, velocity_across
from benchmarks.results import Bar, Result
from benchmarks.serving import daemon

CELLS, QUICK_CELLS = 129, 33
SPEED = 0.1
TOLERANCE = 1e-9
"""The largest change of a population in a step, over the lid's speed, when the flow is steady.
Arbitrary, small beside 1 % even after the 10^5 steps in which slow changes decay."""
MAX_STEPS = 2_000_000
MAX_DEVIATION = 0.01
MAX_MASS_CHANGE = 1e-10


def measure(quick: bool) -> Result:
    columns = (
        "Reynolds number",
        "cells",
        "steps until steady",
        "largest deviation, % of the lid's speed",
        "change of mass, relative",
        f"velocity across at x = {X_LEFT_OUT}",
        "seconds",
    )
    result = Result("cavity", "Lid-driven cavity", columns)
    n = QUICK_CELLS if quick else CELLS
    with daemon() as served:
        for reynolds in (100, 400):
            flow = served.client.submit(
                "lbm",
                rows=n,
                cols=n,
                reynolds=reynolds,
                speed=SPEED,
                steps=MAX_STEPS,
                tolerance=TOLERANCE,
            ).result()
            if not flow.converged:
                raise RuntimeError(f"Re = {reynolds}: not steady after {flow.iterations} steps")
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
    return result


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
    name = f"Re = {case['reynolds']}"
    result.bars += [
        Bar(f"{name}: largest deviation", case["deviation"], MAX_DEVIATION, at_least=False),
        Bar(f"{name}: change of mass", case["mass"], MAX_MASS_CHANGE, at_least=False),
    ]
