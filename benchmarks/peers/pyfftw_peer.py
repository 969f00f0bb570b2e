"""FFTW through pyFFTW: MEASURE, all threads, the whole batch in one plan, the best of three plans.

Plans of equal shape differ by up to 2x between tries, hence three.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pyfftw

from benchmarks.peers.fft_case import arrays, fill, worst


def make(case: dict[str, Any]) -> tuple[Callable[[], None], Callable[[], float]]:
    x, y = arrays(case)
    plans = [plan(x, y, case["threads"]) for _ in range(case.get("plans", 3))]
    fill(x)  # MEASURE overwrites its arrays
    best = min(plans, key=seconds)
    return best.execute, lambda: worst(x, y)


def plan(x: np.ndarray, y: np.ndarray, threads: int) -> Any:
    pyfftw.forget_wisdom()
    return pyfftw.FFTW(x, y, axes=(1, 2), flags=("FFTW_MEASURE",), threads=threads)


def seconds(plan: Any) -> float:
    """Return the minimum seconds of three executions."""
    times = []
    for _ in range(3):
        start = time.perf_counter()
        plan.execute()
        times.append(time.perf_counter() - start)
    return min(times)
