"""Jobs of many sizes at once, cancelled and killed at random: each result is right and stays so.

Several clients submit large and small jobs with priorities, so that small ones run beside large
ones and cores share tails. Device processes are killed, kernels end them, jobs are cancelled.
Outputs go into arrays that are used again: a core that still writes for an earlier job would be
found out.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
import time
from collections import Counter
from concurrent.futures import CancelledError
from concurrent.futures import TimeoutError as Timeout
from dataclasses import dataclass

import numpy as np
import psutil

import hetsched
from benchmarks.results import Bar, Result
from hetsched.client.job import Job
from hetsched.errors import HetschedError
from robustness.daemon import CORES, Daemon, daemon
from robustness.faulty_double import WIDTH
from robustness.scale import Scale

FAULTY = "robustness.faulty_double:FaultyDouble"
CLIENTS = 3
LARGE, SMALL = (400, 40), (3, 10)
"""Units and rounds of each."""
SIZES = (LARGE, SMALL, SMALL, SMALL, (1, 1), (60, 10))
FAULTS = ("SIGSEGV", "exits", "raises", "SystemExit")
FAULT_CHANCE, CANCEL_CHANCE, VERIFY_CHANCE = 0.02, 0.05, 0.2
MAX_AHEAD = 5
"""Jobs of one client that haven't been waited for."""
KILL_PAUSES = (0.5, 2.5)
"""Seconds between two kills."""
MIN_AGE_SECONDS = 2.0
"""Of a process that is killed: those that never get ready are another matter."""
END_SECONDS = 150.0
MAX_FAILED_FRACTION = 0.02
"""Of jobs that had no fault: one that meets three kills in a row is given up."""


@dataclass
class Submitted:
    """A job, its output array, what that must hold, and whether its kernel was to fail."""

    job: Job
    target: np.ndarray
    value: float
    is_faulty: bool


def measure(scale: Scale) -> Result:
    seconds = scale.of(5.0, 90.0, 900.0)
    events: list[str] = []  # all threads append to it
    with daemon(CORES + scale.deadlines) as served:
        end = time.monotonic() + seconds
        threads = [
            threading.Thread(target=_submit_all, args=(served, scale.seed, number, end, events))
            for number in range(CLIENTS)
        ]
        for thread in threads:
            thread.start()
        _kill_some(served, random.Random(scale.seed), end, events)
        for thread in threads:
            thread.join()
        status = served.stop()
    return _result(seconds, Counter(events), status)


def _submit_all(served: Daemon, seed: int, number: int, end: float, events: list[str]) -> None:
    choices = random.Random(1000 * seed + number)
    ahead: list[Submitted] = []
    finished: list[Submitted] = []
    with served.client(timeout=END_SECONDS) as client:
        while time.monotonic() < end:
            submitted = _submit(served, client, choices, finished, events)
            ahead.append(submitted)
            if choices.random() < CANCEL_CHANCE:
                submitted.job.cancel()
            while len(ahead) > choices.randrange(MAX_AHEAD):
                _check(ahead.pop(0), finished, events)
        for submitted in ahead:
            _check(submitted, finished, events)
        for earlier in finished:
            _check_again(earlier, events)


def _submit(
    served: Daemon,
    client: hetsched.Client,
    choices: random.Random,
    finished: list[Submitted],
    events: list[str],
) -> Submitted:
    """Submit a job, into the output of an earlier one if there is one of its size."""
    units, rounds = choices.choice(SIZES)
    fault = choices.choice(FAULTS) if choices.random() < FAULT_CHANCE else ""
    x = client.empty((units, WIDTH), "float64")
    x[...] = choices.random()
    same = [earlier for earlier in finished if len(earlier.target) == units]
    if same and choices.random() < 0.5:
        finished.remove(same[0])
        _check_again(same[0], events)
        target = same[0].target
    else:
        target = client.empty(x.shape, "float64")
    target[...] = np.nan
    job = client.submit(
        FAULTY,
        x,
        out=target,
        units=units,
        rounds=rounds,
        fault=fault,
        marker=str(served.folder / f"fault{choices.getrandbits(64):x}"),
        priority=choices.randint(0, 2),
        verify=choices.random() < VERIFY_CHANCE,
    )
    events.append("submitted")
    return Submitted(job, target, 2 * x[0, 0], bool(fault))


def _check(submitted: Submitted, finished: list[Submitted], events: list[str]) -> None:
    try:
        submitted.job.result(timeout=END_SECONDS)
    except Timeout:
        events.append("stuck")
    except CancelledError:
        events.append("cancelled")
    except HetschedError:
        events.append("failed as asked for" if submitted.is_faulty else "failed")
    else:
        is_right = bool((submitted.target == submitted.value).all())
        events.append("done" if is_right else "wrong")
        finished.append(submitted)


def _check_again(earlier: Submitted, events: list[str]) -> None:
    """Check that nothing has written to the output since the end of its job."""
    if not bool((earlier.target == earlier.value).all()):
        events.append("changed later")


def _kill_some(served: Daemon, choices: random.Random, end: float, events: list[str]) -> None:
    while time.monotonic() < end:
        time.sleep(min(choices.uniform(*KILL_PAUSES), max(0.0, end - time.monotonic())))
        processes = []
        for process in served.device_processes():
            with contextlib.suppress(psutil.Error):
                if time.time() - process.create_time() > MIN_AGE_SECONDS:
                    processes.append(process.pid)
        if processes:
            with contextlib.suppress(ProcessLookupError):
                os.kill(choices.choice(processes), signal.SIGKILL)
                events.append("kills")


def _result(seconds: float, counts: Counter[str], status: int | None) -> Result:
    names = ("submitted", "done", "cancelled", "failed as asked for", "failed", "kills")
    result = Result(
        "mixed_faults",
        "Large and small jobs at once, with kills, failing kernels and cancellations",
        ("time", *names),
    )
    result.rows.append((f"{seconds:g} s", *(str(counts[name]) for name in names)))
    result.data.append({"seconds": seconds, **counts})
    most = max(2.0, MAX_FAILED_FRACTION * counts["submitted"])
    result.bars += [
        Bar("wrong results", counts["wrong"], 0, at_least=False),
        Bar("results changed after the end of their job", counts["changed later"], 0,
            at_least=False),
        Bar("jobs without an end", counts["stuck"], 0, at_least=False),
        Bar("jobs failed because of kills", counts["failed"], most, at_least=False),
        Bar("jobs done", counts["done"], 1),
        Bar("exit status of the daemon", -1 if status is None else status, 0, at_least=False),
    ]  # fmt: skip
    return result
