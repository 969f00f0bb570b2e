"""A private daemon as a context manager: separate sockets and models, the user's caches."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import hetsched
from hetsched.errors import HetschedError
from hetsched.job import JobReport

HETSCHED = Path(sys.prefix) / "bin/hetsched"
PATIENCE = 60.0


@dataclass(frozen=True)
class Served:
    client: hetsched.Client
    process: subprocess.Popen[bytes]


@contextmanager
def daemon(folder: str | None = None) -> Iterator[Served]:
    """Start a fresh daemon on the cores; yield a client of it.

    It keeps its models in `folder`, if given; else they are new and deleted at the end.
    """
    with tempfile.TemporaryDirectory(prefix="hs-") as fresh, places(folder or fresh):
        serve = [HETSCHED, "serve", "--config", "cpu-only"]
        process = subprocess.Popen(serve, stderr=subprocess.PIPE)
        try:
            with connected(process) as client:
                yield Served(client, process)
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=PATIENCE)


def timed(
    client: hetsched.Client, x: object, y: object, count: int, pause: float = 0.0
) -> list[tuple[float, JobReport]]:
    """Transform x into y; return the seconds from each submission to its result, and its report.

    `pause`: seconds before each job.
    """
    done = []
    for _ in range(count):
        time.sleep(pause)
        start = time.perf_counter()
        job = client.submit("fft", x, out=y)  # type: ignore[arg-type]
        job.result()
        done.append((time.perf_counter() - start, report(job)))
    return done


def report(job: hetsched.Job) -> JobReport:
    """Return the report of an ended job."""
    assert job.report is not None
    return job.report


@contextmanager
def places(folder: str, *others: str) -> Iterator[None]:
    """Use runtime and state folders inside `folder`, for this process and its children.

    `others`: more environment variables of folders.
    """
    names = ("HETSCHED_RUNTIME_DIR", "HETSCHED_STATE_DIR", *others)
    before = {name: os.environ.get(name) for name in names}
    os.environ.update({name: str(Path(folder) / name) for name in names})
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value


@contextmanager
def connected(process: subprocess.Popen[bytes]) -> Iterator[hetsched.Client]:
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            client = hetsched.Client()
            break
        except HetschedError:
            if process.poll() is not None or time.monotonic() > deadline:
                raise
            time.sleep(0.05)
    with client:
        yield client
