"""The fifth job of a kind in a daemon without models, over the fiftieth of the same daemon.

Each round is a fresh daemon, so both jobs have their pages in the same place.
"""

from __future__ import annotations

import statistics

from benchmarks import contest
from benchmarks.contest import OURS, Found, Measured, milliseconds, ratio
from benchmarks.serving import daemon, timed
from benchmarks.warm_job import normal

TITLE = "The fifth job of a kind"
CASES = (
    "64x500x500 complex64", "256x512x512 complex64", "4096x64x64 complex64",
    "1024x256x256 complex128", "61x509x509 complex64", "8x256x256 complex64",
)  # fmt: skip
QUICK = ("16x100x100 complex64",)
ROUNDS = 7
JOBS, LATE = 50, 5
"""The median of the last five stands for the fiftieth."""
PAUSE = 0.02
"""Seconds between jobs: the daemon may learn, as it does between a user's jobs."""
COLUMNS = ("case", "jobs 1 to 5, ms", "job 50, ms", "job 5 over job 50 (quartiles)", "variant")


def measure(case: str, rounds: int) -> contest.Benchmarks:
    return contest.race(case, {OURS: lambda: one_daemon(case)}, rounds)


def one_daemon(case: str) -> Measured:
    batch, dtype = case.split()
    shape = tuple(map(int, batch.split("x")))
    with daemon() as served:
        x, y = (served.client.empty(shape, dtype) for _ in "xy")
        x[...] = normal(shape, dtype)
        done = timed(served.client, x, y, JOBS, PAUSE)
    seconds = [each for each, _ in done]
    used = sorted({device.variant for device in done[-1][1].devices})
    values = {f"job {number}": seconds[number - 1] for number in range(1, 6)}
    return Measured(
        {**values, f"job {JOBS}": statistics.median(seconds[-LATE:])}, {"variant": " ".join(used)}
    )


def row(case: str, found: Found, facts: dict[str, str]) -> tuple[str, ...]:
    first = " ".join(milliseconds(found[f"job {number}"]) for number in range(1, 6))
    last = found[f"job {JOBS}"]
    return case, first, milliseconds(last), ratio(found["job 5"], last), facts["variant"]
