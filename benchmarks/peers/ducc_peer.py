"""ducc0: all threads, into an array of the caller."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ducc0

from benchmarks.peers.fft_case import arrays, worst


def make(case: dict[str, Any]) -> tuple[Callable[[], None], Callable[[], float]]:
    x, y = arrays(case)

    def run() -> None:
        ducc0.fft.c2c(x, axes=(1, 2), out=y, nthreads=case["threads"])

    return run, lambda: worst(x, y)
