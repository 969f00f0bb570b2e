"""What hetsched adds: to a job of one plane, to a large one, and as a process of the shell."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time

from benchmarks import contest
from benchmarks.contest import Found, Measured, milliseconds
from benchmarks.serving import HETSCHED, daemon, places, timed

TITLE = "Overhead"
COMMANDS = {
    "hetsched status": (str(HETSCHED), "status"),
    "hetsched run fft --batch 32x512x512": (str(HETSCHED), "run", "fft", "--batch", "32x512x512"),
    "python -c 'import numpy', for scale": (sys.executable, "-c", "import numpy"),
}
BURST = "burst of 2000 jobs"
CASES = ("job 1x64x64", "job 64x512x512", BURST, *COMMANDS)
QUICK = ("job 1x64x64", "hetsched status")
ROUNDS = 5
WARM_UP, JOBS, PROCESSES = 15, 50, 3
BURSTS, IN_FLIGHT = 40, 50
COLUMNS = ("case", "whole, ms", "without the computation, ms")


def measure(case: str, rounds: int) -> contest.Benchmarks:
    if case == BURST:
        return contest.race(case, {"burst": burst}, rounds)
    if case.startswith("job"):
        shape = tuple(map(int, case.split()[1].split("x")))
        return contest.race(case, {"jobs": lambda: jobs(shape)}, rounds)
    with tempfile.TemporaryDirectory(prefix="hs-") as folder, places(folder), daemon(folder):
        return contest.race(case, {"command": lambda: processes(*COMMANDS[case])}, rounds)


def jobs(shape: tuple[int, ...]) -> Measured:
    """Measure jobs of a fresh daemon."""
    with daemon() as served:
        x, y = (served.client.empty(shape, "complex64") for _ in "xy")
        x[...] = 1
        done = timed(served.client, x, y, WARM_UP + JOBS)[WARM_UP:]
    own = [seconds - (report.seconds or 0.0) for seconds, report in done]
    whole = [seconds for seconds, _ in done]
    return Measured({"whole": statistics.median(whole), "own": statistics.median(own)})


def burst() -> Measured:
    """Measure a job of which many are in flight, in a fresh daemon."""
    with daemon() as served:
        x, y = (served.client.empty((1, 64, 64), "complex64") for _ in "xy")
        x[...] = 1
        for count in (1, BURSTS):
            start = time.perf_counter()
            for _ in range(count):
                jobs = [served.client.submit("fft", x, out=y) for _ in range(IN_FLIGHT)]
                for job in jobs:
                    job.result()
    return Measured({"whole": (time.perf_counter() - start) / (BURSTS * IN_FLIGHT)})


def processes(*command: str) -> Measured:
    seconds = []
    for _ in range(PROCESSES):
        start = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=dict(os.environ))
        seconds.append(time.perf_counter() - start)
    return Measured({"whole": statistics.median(seconds)})


def row(case: str, found: Found, facts: object) -> tuple[str, ...]:
    own = milliseconds(found["own"]) if "own" in found else ""
    return (case, milliseconds(found["whole"]), own)
