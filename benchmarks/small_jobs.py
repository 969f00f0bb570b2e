"""Measures what small jobs beside a large one cost it, and how soon they start."""

from __future__ import annotations

import math
import statistics
import time
from dataclasses import dataclass
from typing import Any

import numpy as np

import hetsched
from benchmarks.results import Bar, Result
from benchmarks.serving import daemon, report
from benchmarks.stats import milliseconds
from hetsched.job import JobState, Running

SMALL_JOBS, QUICK_SMALL_JOBS = 1000, 60
ROWS, QUICK_ROWS = 12288, 4096
SMALL_SHAPE = (2, 512, 512)
ROUNDS = 3
WARM_UP = 12
MAX_DELAY_RATIO, MAX_START_SECONDS = 1.05, 0.1


@dataclass
class SmallJob:
    """One small job: seconds from submission to its first chunk (at most) and to its result."""

    wait: float
    total: float
    compute: float
    is_beside: bool


class Bench:
    """A large matrix product, and small FFTs on the same arrays each time."""

    def __init__(self, client: hetsched.Client, rows: int) -> None:
        self._client = client
        shape = (rows, rows)
        self._matrices = {name: client.empty(shape, "float32") for name in ("C", "A", "B")}
        for values in self._matrices.values():
            values[...] = np.random.default_rng(0).standard_normal(shape, "float32")
        self._planes = client.empty(SMALL_SHAPE, "complex64")
        self._planes[...] = np.random.default_rng(1).standard_normal(SMALL_SHAPE)
        self._expected = np.fft.fft2(self._planes)
        self.wrong = 0

    def submit_large(self) -> hetsched.Job:
        return self._client.submit("matrix_update", self._matrices)

    def large_seconds(self) -> float:
        start = time.perf_counter()
        self.submit_large().result()
        return time.perf_counter() - start

    def small_job(self) -> float:
        start = time.perf_counter()
        self._client.submit("fft", self._planes).result()
        return time.perf_counter() - start

    def together(self, count: int, seconds: float) -> tuple[float, list[SmallJob]]:
        """Run the large job, and submit `count` small ones evenly within `seconds` of it."""
        start = time.perf_counter()
        large = self.submit_large()
        wait_until_computing(large)
        began = time.perf_counter()
        jobs: list[tuple[hetsched.Job, float, list[float]]] = []
        for number in range(count):
            time.sleep(max(0.0, began + seconds * number / count - time.perf_counter()))
            ended: list[float] = []
            submitted = time.perf_counter()
            job = self._client.submit("fft", self._planes)
            job.add_done_callback(lambda job, ended=ended: ended.append(time.perf_counter()))
            jobs.append((job, submitted, ended))
        large.result()
        end = time.perf_counter()
        for job, _, _ in jobs:
            difference = np.abs(job.result() - self._expected).max()
            self.wrong += int(difference > 1e-4 * np.abs(self._expected).max())
        return end - start, [small_job(*timed) for timed in jobs]


def wait_until_computing(job: hetsched.Job) -> None:
    while not (job.done() or is_computing(job.progress())):
        time.sleep(0.005)


def is_computing(state: JobState) -> bool:
    return isinstance(state, Running) and state.stage == "computing"


def small_job(job: Any, submitted: float, ended: list[float]) -> SmallJob:
    job.result()
    while not ended:
        time.sleep(0.001)
    ran = report(job)
    compute = ran.seconds or 0.0
    total = ended[0] - submitted
    is_beside = any(note.startswith("ran beside") for note in ran.notes)
    return SmallJob(total - compute, total, compute, is_beside)


def measure(quick: bool) -> Result:
    if quick:
        return measure_counts(QUICK_SMALL_JOBS, QUICK_ROWS, 1)
    return measure_counts(SMALL_JOBS, ROWS, ROUNDS)


def measure_counts(count: int, rows: int, rounds: int) -> Result:
    """Measure a product of `rows` rows and `count` small jobs, `rounds` times."""
    result = Result("small_jobs", "Small jobs beside a large one", ("what", "value"))
    with daemon() as served:
        bench = Bench(served.client, rows)
        for _ in range(WARM_UP):
            bench.small_job()
        for _ in range(1 + rounds):
            bench.large_seconds()
        alone = statistics.median(bench.large_seconds() for _ in range(rounds))
        work = sum(bench.small_job() for _ in range(count))
        bench.together(max(1, count // 10), 0.2 * alone)
        runs = [bench.together(count, 0.8 * alone) for _ in range(rounds)]
        add(result, count, alone, work, runs)
        result.bars.append(Bar("wrong results", bench.wrong, 0, at_least=False))
    return result


def add(
    result: Result,
    count: int,
    alone: float,
    work: float,
    runs: list[tuple[float, list[SmallJob]]],
) -> None:
    together = statistics.median(seconds for seconds, _ in runs)
    beside = [job for _, jobs in runs for job in jobs if job.is_beside]
    waits = sorted(job.wait for job in beside)
    ratio = together / (alone + work)
    compute = sum(job.compute for job in beside) / len(runs)
    p50, p99 = quantile(waits, 0.5), quantile(waits, 0.99)
    rows = (
        ("large job alone, s", f"{alone:.2f}"),
        (f"{count} small jobs alone, one after the other, s", f"{work:.2f}"),
        ("large job with the small ones, s", f"{together:.2f}"),
        ("small jobs that ran beside it", f"{len(beside) / len(runs) / count:.1%}"),
        ("their time on a core, s", f"{compute:.2f}"),
        ("delay of the large job, s", f"{together - alone:.2f}"),
        ("submission to first chunk, median, ms", milliseconds(p50)),
        ("submission to first chunk, 99 %, ms", milliseconds(p99)),
    )
    result.rows += rows
    result.data.append(
        {
            "alone": alone,
            "work": work,
            "together": [seconds for seconds, _ in runs],
            "waits": waits,
            "beside": len(beside),
            "compute": compute,
        }
    )
    result.bars += [
        Bar(
            "seconds with small jobs, of those alone plus their work",
            ratio,
            MAX_DELAY_RATIO,
            False,
        ),
        Bar("submission to first chunk, 99 %, ms", p99 * 1e3, MAX_START_SECONDS * 1e3, False),
    ]
    for row in rows:
        print(f"  {' | '.join(row)}", flush=True)


def quantile(values: list[float], fraction: float) -> float:
    if not values:
        return math.inf  # none ran beside the large job
    return values[min(len(values) - 1, int(fraction * len(values)))]
