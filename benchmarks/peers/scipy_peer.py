"""SciPy: workers=all. It has no output argument; its process keeps freed memory (see children)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.fft

from benchmarks.peers.fft_case import fill, worst


def make(case: dict[str, Any]) -> tuple[Callable[[], None], Callable[[], float]]:
    x = np.empty(case["shape"], case["dtype"])
    fill(x)

    def transform() -> np.ndarray:
        return np.asarray(scipy.fft.fft2(x, axes=(1, 2), workers=case["threads"]))

    def run() -> None:
        transform()

    return run, lambda: worst(x, transform())
