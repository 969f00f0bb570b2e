"""mkl_fft, Intel's Python package: all threads, into an array of the caller."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mkl_fft

from benchmarks.peers.fft_case import arrays, worst


def make(case: dict[str, Any]) -> tuple[Callable[[], None], Callable[[], float]]:
    x, y = arrays(case)

    def run() -> None:
        mkl_fft.fftn(x, axes=(1, 2), out=y)

    return run, lambda: worst(x, y)
