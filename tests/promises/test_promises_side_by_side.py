"""Hundreds of short jobs of several clients at once: every result belongs to its own job."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from served import Daemon, serving

CLIENTS = 4
JOBS = 24
LARGE = (1600, 256, 256)
UNITS = (4, 32, 32)


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    with serving('[[device]]\nkind = "cpu"\nteam = false\n') as daemon:
        yield daemon


def wrong_results(daemon: Daemon, folder: Path, client_number: int) -> list[int]:
    """Submit jobs with files and with arrays, two of each in flight; return those with errors."""
    rng = np.random.default_rng(client_number)
    wrong = []
    with daemon.client() as client:
        for first in range(0, JOBS, 4):
            jobs = []
            for number in range(first, first + 4):
                x = rng.standard_normal(UNITS).astype("complex64")
                source = folder / f"{client_number}-{number}.npy"
                np.save(source, x)
                target = folder / f"{client_number}-{number}-out.npy"
                if number % 4 == 3:
                    jobs.append((number, x, None, client.submit("fft", x)))
                else:
                    job = client.submit("fft", str(source), out=str(target))
                    jobs.append((number, x, target, job))
            for number, x, target, job in jobs:
                y = job.result(timeout=60)
                if target is not None:
                    y = np.load(target)
                if not np.allclose(y, np.fft.fft2(x), atol=1e-2):
                    wrong.append(number)
    return wrong


def keep_busy(daemon: Daemon, is_over: threading.Event) -> None:
    """Have a large job run all the time, so that small ones run at its side."""
    with daemon.client() as client:
        x = client.empty(LARGE, "complex64")
        out = client.empty(LARGE, "complex64")
        while not is_over.is_set():
            client.submit("fft", x, out=out).result(timeout=60)


def test_files_and_arrays_of_jobs_side_by_side_never_mix(daemon: Daemon, tmp_path: Path) -> None:
    is_over = threading.Event()
    with ThreadPoolExecutor(CLIENTS + 1) as clients:
        large = clients.submit(keep_busy, daemon, is_over)
        found = clients.map(lambda n: wrong_results(daemon, tmp_path, n), range(CLIENTS))
        try:
            assert list(found) == [[]] * CLIENTS
        finally:
            is_over.set()
    large.result()
