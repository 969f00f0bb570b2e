"""Plug-ins that hang while clients work: nobody waits for them, and the loop stays quick."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field

import hetsched
from benchmarks.results import Bar, Result
from hetsched.errors import HetschedError, TryAgain
from robustness.daemon import CORES, Daemon, daemon
from robustness.scale import Scale
from robustness.workloads import HANGING

CLIENTS = 4
MAX_STOP_SECONDS = 5.0
PING_SECONDS = 0.005
MAX_WAIT_MS = 100.0
"""99.9 % of pings are answered sooner. A human notices more."""


@dataclass
class Counts:
    """What the clients have seen."""

    done: int = 0
    errors: list[str] = field(default_factory=list)
    """Of small jobs that failed."""
    refused: int = 0
    wrong: int = 0
    """Hanging jobs with any other outcome than TryAgain."""
    lock: threading.Lock = field(default_factory=threading.Lock)


def measure(scale: Scale) -> Result:
    seconds = scale.of(3.0, 30.0, 600.0)
    deadline = scale.of(2.0, 0.5, 0.5)  # other tests keep the cores busy
    config = f'{CORES}\n[deadlines]\ndisk = "{deadline}s"\n'
    counts = Counts()
    with daemon(config) as served:
        _warm_up(served)
        pings = _load(served, counts, seconds)
        with served.client() as client:
            longest = _longest_callback(client)
        stop_seconds, status = _stop_while_hanging(served)
    result = Result(
        "hanging_code",
        f"{CLIENTS} clients with small jobs, while plug-ins hang: answers to pings",
        ("jobs", "refused", "p50", "p99", "p99.9", "longest ping", "longest callback", "stop"),
    )
    waits = [pings[min(int(q * len(pings)), len(pings) - 1)] for q in (0.5, 0.99, 0.999, 1)]
    times = [f"{1e3 * wait:.2f} ms" for wait in waits]
    result.rows.append(
        (str(counts.done), str(counts.refused), *times, f"{1e3 * longest:.1f} ms",
         f"{stop_seconds:.1f} s")
    )  # fmt: skip
    result.data.append({"errors": counts.errors})
    result.bars += [
        Bar("failed jobs", len(counts.errors), 0, at_least=False),
        Bar("hanging jobs that weren't refused", counts.wrong, 0, at_least=False),
        Bar("hanging jobs refused", counts.refused, 1),
        Bar("jobs done", counts.done, CLIENTS),
        Bar("exit status", -1 if status is None else status, 0, at_least=False),
        Bar("seconds to stop while a plug-in hangs", stop_seconds, MAX_STOP_SECONDS,
            at_least=False),
        Bar("99.9th percentile of pings, ms", 1e3 * waits[2], MAX_WAIT_MS, at_least=False),
    ]  # fmt: skip
    return result


def _warm_up(served: Daemon) -> None:
    """Have the daemon import the workload, which can take longer than the deadline of a check."""
    with served.client() as client:
        while True:
            try:
                client.submit("fft", batch="4x64x64").result(60)
                return
            except TryAgain:
                pass


def _load(served: Daemon, counts: Counts, seconds: float) -> list[float]:
    """Return the sorted times in which the daemon answered pings meanwhile."""
    until = time.monotonic() + seconds
    pings: list[float] = []
    threads = [
        threading.Thread(target=_run_jobs, args=(served, counts, until)) for _ in range(CLIENTS)
    ]
    threads.append(threading.Thread(target=_run_hanging_jobs, args=(served, counts, until)))
    threads.append(threading.Thread(target=_ping, args=(served, pings, until)))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sorted(pings)


def _ping(served: Daemon, pings: list[float], until: float) -> None:
    with served.client() as client:
        while not pings or time.monotonic() < until:
            started = time.monotonic()
            client.ping()
            pings.append(time.monotonic() - started)
            time.sleep(PING_SECONDS)


def _run_jobs(served: Daemon, counts: Counts, until: float) -> None:
    with served.client() as client:
        x = client.empty((4, 64, 64), "complex64")
        x[:] = 1
        while True:  # at least once, however slow the machine is
            try:
                client.submit("fft", x).result(60)
            except HetschedError as error:
                counts.errors.append(f"{type(error).__name__}: {error}")
            with counts.lock:
                counts.done += 1
            if time.monotonic() >= until:
                return


def _run_hanging_jobs(served: Daemon, counts: Counts, until: float) -> None:
    with served.client() as client:
        while True:
            try:
                client.submit(HANGING)
                counts.wrong += 1
            except TryAgain:
                counts.refused += 1
            except HetschedError:
                counts.wrong += 1
            if time.monotonic() >= until:
                return


def _longest_callback(client: hetsched.Client) -> float:
    name = "hetsched_loop_longest_callback_seconds"
    lines = [line.split() for line in client.metrics().splitlines()]
    return next(float(words[1]) for words in lines if words[0] == name)


def _stop_while_hanging(served: Daemon) -> tuple[float, int | None]:
    """Send SIGTERM while a job is being checked; return the seconds and the exit status."""
    with served.client(reconnect=0) as client:
        submitting = threading.Thread(target=_submit_in_vain, args=(client,))
        submitting.start()
        begin = time.monotonic()
        status = served.stop()
        seconds = time.monotonic() - begin
        submitting.join()
    return seconds, status


def _submit_in_vain(client: hetsched.Client) -> None:
    try:
        client.submit(HANGING)
    except HetschedError:
        return
