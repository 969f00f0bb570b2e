"""Measures what small jobs beside a large one cost it, and how soon they start.

The load is one that the rule can serve: the work of all small jobs is at most a third of the large
one's, and they arrive evenly while it runs. The large job leaves them half of each core, so more
than twice that can't be served, and the queue would grow to the end.

Results go to a ring of arrays and are checked and forgotten, alone as well as beside the large
job: a new array for each would cost more than its transform, for its pages.
"""

from __future__ import annotations

import math
import os
import statistics
import time
from dataclasses import dataclass

import numpy as np

import hetsched
from benchmarks.results import Bar, Result
from benchmarks.serving import daemon, report
from benchmarks.stats import milliseconds
from hetsched.job import JobState, Running

SMALL_JOBS, QUICK_SMALL_JOBS = 1000, 60
ROWS, QUICK_ROWS = 12288, 4096
SMALL_SHAPE = (1, 512, 512)
RING = 64
"""Arrays for results: more than there are small jobs at a time. Arbitrary."""
STRIDE = 61
"""Every how many rows and columns a result is checked, which must cost next to nothing."""
ROUNDS = 3
WARM_UP = 12
MAX_DELAY_RATIO, MAX_START_SECONDS = 1.05, 0.1
MAX_OFFERED = 1 / 3
"""The work of the small jobs, as a part of the large one's."""
SPREAD = 0.8
"""The small jobs arrive in this part of the time that everything takes alone."""


@dataclass
class SmallJob:
    """One small job: seconds from submission to its first chunk (at most) and to its result."""

    wait: float
    total: float
    compute: float
    is_beside: bool


class Slot:
    """An array for the results of small jobs, one after the other."""

    def __init__(self, client: hetsched.Client) -> None:
        self._client = client
        self._values = client.empty(SMALL_SHAPE, "complex64")
        self._values[...] = 0
        self._job: hetsched.Job | None = None
        self._submitted = 0.0
        self._ended: list[float] = []

    def submit(self, planes: np.ndarray) -> None:
        """Submit a small job; the previous one has been finished."""
        samples(self._values)[...] = np.nan
        ended: list[float] = []
        self._ended, self._submitted = ended, time.perf_counter()
        self._job = self._client.submit("fft", planes, out=self._values)
        self._job.add_done_callback(lambda job: ended.append(time.perf_counter()))

    def finish(self, expected: np.ndarray) -> tuple[SmallJob, bool] | None:
        """Wait for the job; return it and whether its result is right. None: there is none."""
        job, self._job = self._job, None
        if job is None:
            return None
        job.result()
        while not self._ended:
            time.sleep(0.001)
        difference = np.abs(samples(self._values) - samples(expected)).max()
        is_right = bool(difference <= 1e-4 * np.abs(expected[:, ::STRIDE]).max())
        return small_job(job, self._ended[0] - self._submitted), is_right


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
        self._ring = [Slot(client) for _ in range(RING)]
        self.wrong = 0

    def submit_large(self) -> hetsched.Job:
        return self._client.submit("matrix_update", self._matrices)

    def large_seconds(self) -> float:
        start = time.perf_counter()
        self.submit_large().result()
        return time.perf_counter() - start

    def alone(self, count: int) -> tuple[float, list[SmallJob]]:
        """Run `count` small jobs, one after the other; return the seconds of all, and each."""
        start = time.perf_counter()
        jobs = []
        for number in range(count):
            slot = self._ring[number % RING]
            slot.submit(self._planes)
            jobs += self._finish(slot)
        return time.perf_counter() - start, jobs

    def together(self, count: int, seconds: float) -> tuple[float, list[SmallJob]]:
        """Run the large job, and submit `count` small ones evenly within `seconds` of it."""
        start = time.perf_counter()
        large = self.submit_large()
        wait_until_computing(large)
        began = time.perf_counter()
        jobs: list[SmallJob] = []
        for number in range(count):
            slot = self._ring[number % RING]
            jobs += self._finish(slot)
            time.sleep(max(0.0, began + seconds * number / count - time.perf_counter()))
            slot.submit(self._planes)
        large.result()
        end = time.perf_counter()
        for slot in self._ring:
            jobs += self._finish(slot)
        return end - start, jobs

    def _finish(self, slot: Slot) -> list[SmallJob]:
        """Wait for the job of `slot`, if it has one."""
        finished = slot.finish(self._expected)
        if finished is None:
            return []
        job, is_right = finished
        self.wrong += not is_right
        return [job]


def samples(planes: np.ndarray) -> np.ndarray:
    return planes[:, ::STRIDE, ::STRIDE]


def wait_until_computing(job: hetsched.Job) -> None:
    while not (job.done() or is_computing(job.progress())):
        time.sleep(0.005)


def is_computing(state: JobState) -> bool:
    return isinstance(state, Running) and state.stage == "computing"


def small_job(job: hetsched.Job, total: float) -> SmallJob:
    ran = report(job)
    compute = ran.seconds or 0.0
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
        bench.alone(RING + WARM_UP)
        for _ in range(1 + rounds):
            bench.large_seconds()
        alone = statistics.median(bench.large_seconds() for _ in range(rounds))
        work, jobs = bench.alone(count)
        offered = sum(job.compute for job in jobs) / (len(os.sched_getaffinity(0)) * alone)
        bench.together(max(1, count // 10), 0.2 * alone)
        runs = [bench.together(count, SPREAD * (alone + work)) for _ in range(rounds)]
        add(result, count, alone, work, offered, runs)
        result.bars.append(Bar("wrong results", bench.wrong, 0, at_least=False))
    return result


def add(
    result: Result,
    count: int,
    alone: float,
    work: float,
    offered: float,
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
        ("seconds of small jobs on a core, of the large one's", f"{offered:.0%}"),
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
            "offered": offered,
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
        Bar("seconds of small jobs on a core, of the large one's", offered, MAX_OFFERED, False),
        Bar("submission to first chunk, 99 %, ms", p99 * 1e3, MAX_START_SECONDS * 1e3, False),
    ]
    for row in rows:
        print(f"  {' | '.join(row)}", flush=True)


def quantile(values: list[float], fraction: float) -> float:
    if not values:
        return math.inf  # none ran beside the large job
    return values[min(len(values) - 1, int(fraction * len(values)))]
