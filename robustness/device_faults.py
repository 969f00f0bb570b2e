"""Device processes that are killed, stopped, crash, hang, exit or raise: jobs go on elsewhere."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections import Counter
from concurrent.futures import TimeoutError as Timeout
from dataclasses import dataclass, field
from pathlib import Path

import hetsched
from benchmarks.results import Bar, Result
from hetsched.client.job import Job
from hetsched.errors import HetschedError
from robustness.daemon import CORES, Daemon, daemon
from robustness.faulty_double import KERNEL_FAULTS, WIDTH
from robustness.scale import Scale

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
class Record:
    """What happened under all daemons, whose threads append to it side by side."""

    ends: list[tuple[str, str]] = field(default_factory=list)
    """Fault ("": none), and what became of the job in which it was, or of the next one."""
    next_seconds: list[tuple[str, float]] = field(default_factory=list)
    """Fault, and seconds from it to the end of the next job, which takes milliseconds."""
    statuses: list[int | None] = field(default_factory=list)

    def failed(self) -> Counter[str]:
        """Return the failed jobs of each fault."""
        return Counter(fault for fault, end in self.ends if end.startswith("failed"))

    def seconds(self, *faults: str) -> list[float]:
        """Return the times until the next job's end after any of `faults`, in order."""
        return sorted(seconds for fault, seconds in self.next_seconds if fault in faults)


def measure(scale: Scale) -> Result:
    rounds, daemons = scale.of(len(FAULTS), 60, 200), scale.of(1, 1, 4)
    choices = random.Random(scale.seed)
    faults = [FAULTS[i] if i < len(FAULTS) else choices.choice(FAULTS) for i in range(rounds)]
    parts = [(faults[i::daemons], random.Random(choices.random())) for i in range(daemons)]
    record = Record()
    scale.map(lambda part: _serve(*part, scale, record), parts)
    return _result(rounds, record)


def _serve(faults: list[str], choices: random.Random, scale: Scale, record: Record) -> None:
    """Let `faults` happen to one daemon, one after the other."""
    with daemon(CORES + scale.deadlines) as served:
        with served.client(timeout=END_SECONDS) as client:
            for _ in range(5):  # so that there are predictions
                _check(_submit(client, choices), record, "")
            for number, fault in enumerate(faults):
                _round(served, client, choices, fault, served.folder / f"fault{number}", record)
        record.statuses.append(served.stop())


def _round(
    served: Daemon,
    client: hetsched.Client,
    choices: random.Random,
    fault: str,
    marker: Path,
    record: Record,
) -> None:
    """Let `fault` happen during a job, followed by another one."""
    in_kernel = fault in KERNEL_FAULTS
    job = _submit(client, choices, fault=fault if in_kernel else "", marker=str(marker))
    victim = None
    if not in_kernel:
        time.sleep(choices.random() * 0.02)
        victim = choices.choice(served.device_processes()).pid
        os.kill(victim, SIGNALS[fault])
        marker.touch()
    ended = list[float]()
    following = _submit(client, choices)
    following.add_done_callback(lambda _: ended.append(time.time()))
    _check(job, record, fault)
    _check(following, record, fault)
    if victim is not None:  # a stopped one that no job has needed mustn't delay the next round
        with contextlib.suppress(ProcessLookupError):
            os.kill(victim, signal.SIGCONT)
    if ended and marker.exists():
        record.next_seconds.append((fault, ended[0] - marker.stat().st_mtime))


def _submit(client: hetsched.Client, choices: random.Random, **options: object) -> Job:
    units = choices.randint(1, MAX_UNITS)
    x = client.empty((units, WIDTH), "float64")
    x[...] = choices.random()
    job = client.submit(FAULTY, x, units=units, **options)
    job.expected = 2 * x[0, 0]  # type: ignore[attr-defined]
    return job


def _check(job: Job, record: Record, fault: str) -> None:
    try:
        result = job.result(timeout=END_SECONDS)
    except Timeout:
        end = "stuck"
        job.cancel()
    except HetschedError as error:
        end = "failed" if str(error) else "failed without a reason"
    else:
        is_right = bool((result == job.expected).all())  # type: ignore[attr-defined]
        end = "done" if is_right else "wrong"
    record.ends.append((fault, end))


def _result(rounds: int, record: Record) -> Result:
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
    failed = record.failed()
    for fault in FAULTS:
        seconds = record.seconds(fault) or [0.0]
        times = f"{seconds[len(seconds) // 2]:.2f} s", f"{seconds[-1]:.2f} s"
        result.rows.append((fault, str(len(seconds)), str(failed[fault]), *times))
    by_fault = {fault: record.seconds(fault) for fault in FAULTS}
    result.data.append({"rounds": rounds, "failed": dict(failed), "next_seconds": by_fault})
    ends = Counter(end for _, end in record.ends)
    others = sum(n for fault, n in failed.items() if fault not in RAISING)
    quick = record.seconds(*set(FAULTS).difference(SILENT))
    silent = record.seconds(*SILENT)
    result.bars += [
        Bar("wrong results", ends["wrong"], 0, at_least=False),
        Bar("jobs without an end", ends["stuck"], 0, at_least=False),
        Bar("jobs that failed without a reason", ends["failed without a reason"], 0,
            at_least=False),
        Bar("jobs failed by other faults than exceptions", others, 0.02 * rounds, at_least=False),
        Bar("jobs done", ends["done"], rounds),
        Bar("seconds until the next job is done after a death or an exception",
            max(quick, default=0.0), MAX_NEXT_SECONDS, at_least=False),
        Bar("seconds until the next job is done after a silence",
            max(silent, default=0.0), MAX_SILENT_SECONDS, at_least=False),
        Bar("daemons whose exit status isn't 0",
            sum(status != 0 for status in record.statuses), 0, at_least=False),
    ]  # fmt: skip
    return result
