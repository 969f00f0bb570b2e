"""How long the path of a job and of a request is: calls, functions and files, in all processes.

Counts calls of functions below `hetsched/` and `workloads/`, from the request to its answer, in a
client, the daemon and its device processes: those of warm jobs one after the other, with what the
daemon does between them, and the files of functions that run in at least every second one; those
of `hold`; and what imports and an idle daemon cost (its memory: after jobs, without clients).

    python -m benchmarks.job_path [PYTHON ...]     the same of other environments, with lists
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

RECORDER = Path(__file__).parent / "call_recorder"
REPOSITORY = Path(__file__).parents[1]
WARM_UP_JOBS = 80
"""Jobs after which all variants have been tried, and good plans are repeated."""
COUNTED_JOBS = 20
IMPORTS = 5
IDLE_SECONDS = 20.0
MAX_CALLS, MAX_FILES, MAX_HOLD_FUNCTIONS, MAX_MODULES = 800, 45, 10, 200
MAX_IDLE_MS = 20.0
"""Processor time of an idle daemon with one client, in a minute."""
MAX_IDLE_MIB = 90.0
REST_SECONDS = 4.0
"""Within which a daemon that has lost its client has ended what it doesn't need."""
CONFIG = '[arena]\nwarm_for = "1s"\n[[device]]\nkind = "cpu"\n'

DRIVER = """
import os, sys, time
import numpy as np
import hetsched
import psutil

warm_up, counted, idle = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
switch, daemon = sys.argv[4], psutil.Process(int(sys.argv[5]))

def family():
    return [daemon, *daemon.children(recursive=True)]

def processor_seconds():
    return sum(sum(process.cpu_times()[:2]) for process in family())

def count(work):
    if switch:
        with open(switch, "r+b", buffering=0) as file, open(sys.argv[6], "a") as log:
            file.write(bytes([1]))
            work()
            file.seek(0)
            file.write(bytes([0]))
            log.write("====\\n")

with hetsched.Client() as client:
    x = client.empty((1, 64, 64), "complex64")
    y = client.empty((1, 64, 64), "complex64")
    x[...] = 1

    def jobs(number):
        for _ in range(number):
            client.submit("fft", x, out=y).result(timeout=60)

    jobs(warm_up)
    time.sleep(2.0)
    if switch:
        for _ in range(counted):
            count(lambda: jobs(1))
        held = client.submit("fft", x, out=y, hold=True)
        client.release(held.id)
        held.result(timeout=60)
        blocked = client.submit("fft", x, out=y, hold=True)
        waiting = client.submit("fft", x, out=y, after=blocked)
        time.sleep(2.0)
        count(lambda: (client.ping(), client.ping()))  # what follows the first reply, too
        count(lambda: client.hold(waiting.id))
        blocked.cancel()
    else:
        before = processor_seconds()
        time.sleep(idle)
        print(processor_seconds() - before)
"""


Calls = Counter[tuple[str, str]]
"""(File, function) -> how often it was called, in all processes."""


@dataclass(frozen=True)
class JobPath:
    """The calls of each job, and functions of `hold` that don't run for `ping`."""

    jobs: list[Calls]
    hold: set[tuple[str, str]]

    @property
    def calls(self) -> float:
        return statistics.median(job.total() for job in self.jobs)

    @property
    def files(self) -> set[str]:
        """Those of functions that run in at least every second job."""
        jobs = Counter(file for job in self.jobs for file in {file for file, _ in job})
        return {file for file, count in jobs.items() if 2 * count >= len(self.jobs)}


def _figures(python: Path) -> list[tuple[str, float, float]]:
    path = record(python)
    modules, seconds = imports(python)
    idle_seconds, pss = idle(python, IDLE_SECONDS)
    return [
        ("calls of a warm job", path.calls, MAX_CALLS),
        ("files of a warm job", len(path.files), MAX_FILES),
        ("functions of hold, beyond those of ping", len(path.hold), MAX_HOLD_FUNCTIONS),
        ("own modules of hetsched.local", modules, MAX_MODULES),
        ("its import, ms of processor time", seconds * 1000, 0.0),
        ("idle daemon, ms of processor time a minute", idle_seconds * 1000, MAX_IDLE_MS),
        ("idle daemon, MiB", pss / 2**20, MAX_IDLE_MIB),
    ]


def record(python: Path) -> JobPath:
    """Count what warm jobs, `ping` and `hold` call."""
    with tempfile.TemporaryDirectory(prefix="hs-") as temporary:
        folder = Path(temporary)
        log, switch = folder / "calls", folder / "switch"
        log.touch()
        switch.write_bytes(bytes(1))
        environment = _environment(folder) | {
            "HETSCHED_CALLS_LOG": str(log),
            "HETSCHED_CALLS_SWITCH": str(switch),
            "HETSCHED_CALLS_ROOTS": os.pathsep.join(_roots(python)),
            "PYTHONPATH": str(RECORDER),
        }
        with _daemon(python, environment) as pid:
            with _driver(python, environment, [str(switch), str(pid), str(log)], 0.0) as driver:
                driver.wait(120)
            parts = log.read_text(encoding="utf-8").split("====\n")
    *jobs, ping, hold = [_calls(part) for part in parts[: COUNTED_JOBS + 2]]
    return JobPath(jobs, set(hold) - set(ping))


def _calls(part: str) -> Calls:
    fields = [line.split("\t") for line in part.splitlines()]
    return Counter((file, name) for _, file, name in fields)


def imports(python: Path) -> tuple[int, float]:
    """Return how many of our modules `hetsched.local` loads, and the processor time of that."""
    code = (
        "import sys, time\nimport hetsched.local\n"
        "print(sum(m.split('.')[0] == 'hetsched' for m in sys.modules), time.process_time())"
    )
    runs = []
    for _ in range(IMPORTS):
        done = subprocess.run(
            [python, "-P", "-c", code], capture_output=True, text=True, check=True
        )
        count, seconds = done.stdout.split()
        runs.append((int(count), float(seconds)))
    return runs[0][0], statistics.median(seconds for _, seconds in runs)


def idle(python: Path, seconds: float) -> tuple[float, float]:
    """Return an idle daemon's processor seconds a minute, with one client, and its bytes."""
    with tempfile.TemporaryDirectory(prefix="hs-") as temporary:
        environment = _environment(Path(temporary))
        with _daemon(python, environment) as pid:
            with _driver(python, environment, ["", str(pid)], seconds) as driver:
                assert driver.stdout is not None
                used = float(driver.stdout.readline())
            time.sleep(REST_SECONDS)
            daemon = psutil.Process(pid)
            family = (daemon, *daemon.children(recursive=True))
            pss = sum(process.memory_full_info().pss for process in family)
            return used * 60 / seconds, pss


def _environment(folder: Path) -> dict[str, str]:
    config = folder / "config.toml"
    config.write_text(CONFIG, encoding="utf-8")
    return os.environ | {
        "HETSCHED_CONFIG": str(config),
        "HETSCHED_RUNTIME_DIR": str(folder / "run"),
        "HETSCHED_STATE_DIR": str(folder / "state"),
    }


@contextmanager
def _daemon(python: Path, environment: dict[str, str]) -> Iterator[int]:
    command = python.parent / "hetsched"
    daemon = subprocess.Popen([command, "serve"], env=environment, stderr=subprocess.DEVNULL)
    try:
        yield daemon.pid
    finally:
        daemon.terminate()
        daemon.wait(60)


@contextmanager
def _driver(
    python: Path, environment: dict[str, str], arguments: list[str], seconds: float
) -> Iterator[subprocess.Popen[str]]:
    numbers = [str(WARM_UP_JOBS), str(COUNTED_JOBS), str(seconds)]
    while subprocess.run(
        [python.parent / "hetsched", "ping"], env=environment, capture_output=True, check=False
    ).returncode:
        pass
    command = [python, "-P", "-c", DRIVER, *numbers, *arguments]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as driver:
        yield driver


def _roots(python: Path) -> list[str]:
    code = (
        "import hetsched, hetsched_workloads\n"
        "print(hetsched.__path__[0], hetsched_workloads.__path__[0], sep='\\n')"
    )
    done = subprocess.run([python, "-P", "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def main() -> None:
    for python in [Path(word).absolute() for word in sys.argv[1:]] or [Path(sys.executable)]:
        print(python)
        for what, value, limit in _figures(python):
            print(f"  {what}: {value:.4g}" + (f", at most {limit:g}" if limit else ""))
        path = record(python)
        for file in sorted(path.files):
            print("   ", file)
        for file, name in sorted(path.hold):
            print("    hold:", file, name)


if __name__ == "__main__":
    main()
