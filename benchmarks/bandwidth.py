"""The rate at which all cores together copy memory: what limits solvers that compute little."""

from __future__ import annotations

import os
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np

NBYTES = 256 << 20
"""Of each array: several times the last cache of most processors."""
ROUNDS = 9


def copy_bandwidth(nbytes: int = NBYTES, rounds: int = ROUNDS) -> float:
    """Return the median rate of copies, bytes per second, read and written ones added up."""
    cores = len(os.sched_getaffinity(0))
    source, target = np.zeros(nbytes, np.uint8), np.ones(nbytes, np.uint8)
    source[...] = 1  # pages of their own, not the page of zeros
    bounds = [nbytes * core // cores for core in range(cores + 1)]
    parts = [slice(*pair) for pair in pairwise(bounds)]
    seconds = []
    with ThreadPoolExecutor(cores) as pool:
        for _ in range(rounds):
            start = time.perf_counter()
            list(pool.map(lambda part: np.copyto(target[part], source[part]), parts))
            seconds.append(time.perf_counter() - start)
    return 2 * nbytes / statistics.median(seconds)
