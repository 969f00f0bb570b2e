"""A daemon with 64 descriptors: it refuses what it can't hold, stays responsive, and recovers."""

from __future__ import annotations

import contextlib
import socket
import time
from dataclasses import dataclass, field

import numpy as np
import psutil

import hetsched
from benchmarks.results import Bar, Result
from hetsched.errors import TryAgain
from robustness.daemon import CORES, Daemon, daemon
from robustness.scale import Scale

DESCRIPTORS = 64
MAX_KEPT = 1000
"""Results or clients after which there should have been a refusal."""
FLOOD = 100
"""Connections that arrive at once."""
MAX_LOG_BYTES = 4000
"""What the flood may add to the log: a few lines."""
MAX_BUSY = 0.2
"""Fraction of a core that a daemon may use that has no free descriptors and nothing to do."""


@dataclass
class Findings:
    """What happened in one run."""

    results: int = 0
    sessions: int = 0
    unclear: int = 0
    """Refusals that don't name the limit, and other errors."""
    log_bytes: int = 0
    busy: float = 0.0
    recovered: bool = False
    status: int | None = None
    clients: list[hetsched.Client] = field(default_factory=list)


def measure(scale: Scale) -> Result:
    rounds = scale.of(1, 5, 20)
    result = Result(
        "few_descriptors",
        f"{DESCRIPTORS} descriptors: clients that keep results, and floods of connections",
        ("round", "results kept", "clients", "processor", "log", "works again", "exit status"),
    )
    runs = scale.map(lambda _: _run(scale), range(rounds))
    for index, run in enumerate(runs, start=1):
        row = (index, run.results, run.sessions, f"{run.busy:.0%}", run.log_bytes, run.recovered)
        result.rows.append((*map(str, row), str(run.status)))
    unclear = sum(run.unclear for run in runs)
    failures = sum(not run.recovered or run.status != 0 for run in runs)
    result.bars += [
        Bar("errors that don't name the limit", unclear, 0, at_least=False),
        Bar("daemons that didn't recover", failures, 0, at_least=False),
        Bar("results kept by a client", min(run.results for run in runs), 2),
        Bar("bytes logged of a flood", max(r.log_bytes for r in runs), MAX_LOG_BYTES,
            at_least=False),
        Bar("processor seconds per second", max(r.busy for r in runs), MAX_BUSY, at_least=False),
    ]  # fmt: skip
    return result


def _run(scale: Scale) -> Findings:
    findings = Findings()
    with daemon(CORES + scale.deadlines, descriptors=DESCRIPTORS) as served:
        with contextlib.ExitStack() as clients:
            first = clients.enter_context(served.client())
            kept = _keep_results(first, findings)
            _connect(served, clients, findings)
            _flood(served, findings)
            first.ping()
            del kept
        findings.recovered = _works(served)
        findings.status = served.stop()
    return findings


def _keep_results(client: hetsched.Client, findings: Findings) -> list[np.ndarray]:
    """Keep results until a job is refused."""
    kept: list[np.ndarray] = []
    while len(kept) < MAX_KEPT:
        try:
            kept.append(client.submit("fft", batch="1x8x8").result(60))
        except TryAgain as error:
            findings.unclear += "RLIMIT_NOFILE" not in str(error)
            break
    findings.results = len(kept)
    return kept


def _connect(served: Daemon, clients: contextlib.ExitStack, findings: Findings) -> None:
    """Connect clients until one is refused."""
    while findings.sessions < MAX_KEPT:
        try:
            clients.enter_context(served.client())
        except TryAgain as error:
            findings.unclear += "RLIMIT_NOFILE" not in str(error)
            return
        findings.sessions += 1


def _flood(served: Daemon, findings: Findings) -> None:
    """Open many connections, and watch the daemon for a second."""
    log_size = served.log.stat().st_size
    process = psutil.Process(served.pid)
    with contextlib.ExitStack() as stack:
        for _ in range(FLOOD):
            connection = stack.enter_context(
                socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
            )
            with contextlib.suppress(BlockingIOError):
                connection.connect(str(served.folder / "session.sock"))
        before = sum(process.cpu_times()[:2])
        time.sleep(1.0)
        findings.busy = sum(process.cpu_times()[:2]) - before
    findings.log_bytes = served.log.stat().st_size - log_size


def _works(served: Daemon) -> bool:
    """Return whether another client can connect and run jobs."""
    until = time.monotonic() + 20
    while time.monotonic() < until:
        with contextlib.suppress(TryAgain), served.client() as client:
            return bool(client.submit("fft", batch="4x8x8").result(60).shape == (4, 8, 8))
    return False
