"""Device processes that are killed, stopped, crash, hang, exit or raise: jobs go on elsewhere."""

from __future__ import annotations

import contextlib
import functools
import os
import random
import signal
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as Timeout
from dataclasses import dataclass, field
from itertools import repeat
from pathlib import Path

import hetsched
from benchmarks.results import Bar, Result
from hetsched.client.job import Job
from hetsched.errors import HetschedError
from robustness.daemon import CORES, Daemon, daemon
from robustness.device_processes import device_processes
from robustness.faulty_double import KERNEL_FAULTS, WIDTH
from robustness.scale import Scale

ROOT = str(Path(__file__).parent.parent)
FAULTY = "robustness.faulty_double:FaultyDouble"
SIGNALS = {"SIGKILL": signal.SIGKILL, "SIGSTOP": signal.SIGSTOP}
FAULTS = (*SIGNALS, *KERNEL_FAULTS)
SILENT = ("SIGSTOP", "hangs", "spins")
"""These end with a deadline; the others at once."""
RAISING = ("raises", "out of memory", "SystemExit")
"""These fail their job."""
MAX_UNITS = 200
END_SECONDS = 150.0
"""A job that hasn't ended by then never does."""
MAX_NEXT_SECONDS = 1.0
MAX_SILENT_SECONDS = 35.0


@dataclass
class Counts:
    """What became of the jobs; `next_seconds`: from each fault to the end of the next
    job, which takes milliseconds."""

    done: int = 0
    failed: dict[str, int] = field(default_factory=dict)
    wrong: int = 0
    stuck: int = 0
    without_reason: int = 0
    failed_stops: int = 0
    next_seconds: dict[str, list[float]] = field(default_factory=dict)

    def __add__(self, other: Counts) -> Counts:
        both = {
            fault: self.next_seconds.get(fault, []) + other.next_seconds.get(fault, [])
            for fault in {**self.next_seconds, **other.next_seconds}
        }
        return Counts(
            self.done + other.done,
            dict(Counter(self.failed) + Counter(other.failed)),
            self.wrong + other.wrong,
            self.stuck + other.stuck,
            self.without_reason + other.without_reason,
            self.failed_stops + other.failed_stops,
            both,
        )

    def longest(self, faults: tuple[str, ...]) -> float:
        """Return the longest time until the next job's end after any of `faults`."""
        return max([0.0, *(s for fault in faults for s in self.next_seconds.get(fault, ()))])


def measure(scale: Scale) -> Result:
    rounds = scale.of(len(FAULTS), 60, 200)
    choices = random.Random(scale.seed)
    faults = [FAULTS[i] if i < len(FAULTS) else choices.choice(FAULTS) for i in range(rounds)]
    # Most of the time goes into waiting for deadlines, so several daemons can wait at once.
    lanes = scale.of(1, 1, 4)
    with ThreadPoolExecutor(lanes) as pool:
        seeds = [choices.random() for _ in range(lanes)]
        parts = pool.map(_serve, (faults[i::lanes] for i in range(lanes)), seeds, repeat(scale))
        counts = functools.reduce(Counts.__add__, parts)
    return _result(rounds, counts)


def _serve(faults: list[str], seed: float, scale: Scale) -> Counts:
    """Let `faults` happen to one daemon, one after the other."""
    choices = random.Random(seed)
    counts = Counts()
    with daemon(CORES + scale.deadlines, {"PYTHONPATH": ROOT}) as served:
        with served.client(timeout=END_SECONDS) as client:
            for _ in range(5):  # so that there are predictions
                _check(_submit(client, choices), counts, "")
            for number, fault in enumerate(faults):
                _round(served, client, choices, fault, served.folder / f"fault{number}", counts)
        counts.failed_stops += served.stop() != 0
    return counts


def _round(
    served: Daemon,
    client: hetsched.Client,
    choices: random.Random,
    fault: str,
    marker: Path,
    counts: Counts,
) -> None:
    """Let `fault` happen during a job, followed by another one."""
    in_kernel = fault in KERNEL_FAULTS
    job = _submit(client, choices, fault=fault if in_kernel else "", marker=str(marker))
    victim = None
    if not in_kernel:
        time.sleep(choices.random() * 0.02)
        victim = choices.choice(device_processes(served.pid)).pid
        os.kill(victim, SIGNALS[fault])
        marker.touch()
    ended = list[float]()
    following = _submit(client, choices)
    following.add_done_callback(lambda _: ended.append(time.time()))
    _check(job, counts, fault)
    _check(following, counts, fault)
    if (
        victim is not None
    ):  # a stopped process that no job has needed must not hold up the next round
        with contextlib.suppress(ProcessLookupError):
            os.kill(victim, signal.SIGCONT)
    if ended and marker.exists():
        counts.next_seconds.setdefault(fault, []).append(ended[0] - marker.stat().st_mtime)


def _submit(client: hetsched.Client, choices: random.Random, **options: object) -> Job:
    units = choices.randint(1, MAX_UNITS)
    x = client.empty((units, WIDTH), "float64")
    x[...] = choices.random()
    job = client.submit(FAULTY, x, units=units, **options)
    job.expected = 2 * x[0, 0]  # type: ignore[attr-defined]
    return job


def _check(job: Job, counts: Counts, fault: str) -> None:
    try:
        result = job.result(timeout=END_SECONDS)
    except Timeout:
        counts.stuck += 1
        job.cancel()
    except HetschedError as error:
        counts.failed[fault] = counts.failed.get(fault, 0) + 1
        counts.without_reason += not str(error)
    else:
        counts.done += 1
        counts.wrong += not bool((result == job.expected).all())  # type: ignore[attr-defined]


def _result(rounds: int, counts: Counts) -> Result:
    result = Result(
        "device_faults",
        "Faults of device processes, one in each of many jobs",
        (
            "fault",
            "times",
            "jobs that failed",
            "next job done after, median",
            "longest",
        ),
    )
    for fault in FAULTS:
        seconds = sorted(counts.next_seconds.get(fault, [0.0]))
        times = f"{seconds[len(seconds) // 2]:.2f} s", f"{seconds[-1]:.2f} s"
        result.rows.append((fault, str(len(seconds)), str(counts.failed.get(fault, 0)), *times))
    result.data.append(
        {"rounds": rounds, "failed": counts.failed, "next_seconds": counts.next_seconds}
    )
    quick = tuple(fault for fault in FAULTS if fault not in SILENT)
    others = sum(n for fault, n in counts.failed.items() if fault not in RAISING)
    result.bars += [
        Bar("wrong results", counts.wrong, 0, at_least=False),
        Bar("jobs without an end", counts.stuck, 0, at_least=False),
        Bar("jobs that failed without a reason", counts.without_reason, 0, at_least=False),
        Bar("jobs failed by other faults than exceptions", others, 0.02 * rounds, at_least=False),
        Bar("jobs done", counts.done, rounds),
        Bar("seconds until the next job is done after a death or an exception",
            counts.longest(quick), MAX_NEXT_SECONDS, at_least=False),
        Bar("seconds until the next job is done after a silence",
            counts.longest(SILENT), MAX_SILENT_SECONDS, at_least=False),
        Bar("daemons whose exit status isn't 0", counts.failed_stops, 0, at_least=False),
    ]  # fmt: skip
    return result
