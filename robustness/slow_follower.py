"""A follower of all jobs that is stopped (SIGSTOP): what it costs, and what it is told afterwards.

Rounds of submissions without a follower and with a stopped one alternate. The jobs are on hold, so
that the time is that of the daemon, not of devices. What the daemon keeps of ended jobs is bounded
by small limits, which the first rounds reach: what grows after that is kept for the follower.
"""

from __future__ import annotations

import contextlib
import json
import re
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

import hetsched
from benchmarks.results import Bar, Result
from robustness.daemon import Daemon, daemon
from robustness.scale import Scale

CONFIG = """
[queue]
limit = 100000
followers = 100000

[limits]
ended_jobs = "1MiB"

[journal]
keep_jobs = 500

[[device]]
kind = "emulated"
clock = "virtual"
compute = { unit = "20us" }
"""
FOLLOW = (sys.executable, "-m", "hetsched.cli.main", "follow", "--json")
WAIT_SECONDS = 60.0
EVENT_SECONDS = 2.0
"""For an event to be printed. Arbitrary."""
RATIO = 1.05
MAX_GROWTH = 5.0
"""MiB of private memory."""
WARM_UP_ROUNDS = 2
"""Until all that has a limit is full."""


class Follower:
    """`hetsched follow` as a process of its own, which follows; its output goes to files."""

    def __init__(self, served: Daemon, folder: Path, client: hetsched.Client) -> None:
        self._out, self._err = folder / "events", folder / "notes"
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.process = subprocess.Popen(FOLLOW, stdout=out, stderr=err, env=served.environment)
        self.catch_up(client)

    def catch_up(self, client: hetsched.Client) -> None:
        """Wait until it prints the events of a new job.

        Those of the first ones may be lost, until it has read what waits for it.
        """
        deadline = time.monotonic() + WAIT_SECONDS
        while not self._sees(one_more(client)):
            if time.monotonic() > deadline:
                raise RuntimeError(f"the follower prints nothing: {self._err.read_text()}")

    def sequence(self) -> tuple[list[int], int]:
        """Return the numbers of all events so far, and how many are said to be lost."""
        events = [json.loads(line) for line in self._out.read_text().splitlines()]
        lost = re.findall(r"^(\d+) events? (?:was|were) lost", self._err.read_text(), re.MULTILINE)
        return [event["sequence"] for event in events], sum(map(int, lost))

    def _sees(self, job: int) -> bool:
        """Return whether it prints the end of `job` soon."""
        return has_text(self._out, f'"job":{job},"state":"cancelled"', EVENT_SECONDS)


def has_text(path: Path, text: str, seconds: float) -> bool:
    """Wait until the file contains `text`, no longer than `seconds`; return whether it does."""
    deadline = time.monotonic() + seconds
    while text not in path.read_text(encoding="utf-8"):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


@contextlib.contextmanager
def stopped(follower: Follower) -> Iterator[None]:
    follower.process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        follower.process.send_signal(signal.SIGCONT)


@dataclass(frozen=True)
class Round:
    """Seconds, and processor seconds of the daemon, without and with a stopped follower."""

    alone: tuple[float, float]
    beside: tuple[float, float]
    events: int
    lost: int
    unreported: int
    """Missing numbers that the follower wasn't told of."""


def measure(scale: Scale) -> Result:
    jobs, rounds = scale.of(20, 1000, 5000), scale.of(1, 7, 11)
    with daemon(CONFIG) as served, served.client() as client:
        for _ in range(WARM_UP_ROUNDS):
            run(served, client, jobs)
        before = served.usage()["private_bytes"]
        done = [one_round(served, client, jobs) for _ in range(rounds)]
        growth = (served.usage()["private_bytes"] - before) / 2**20
    return _result(jobs, done, growth)


def one_round(served: Daemon, client: hetsched.Client, jobs: int) -> Round:
    alone = run(served, client, jobs)
    follower = Follower(served, served.folder, client)
    with stopped(follower):
        beside = run(served, client, jobs)
    follower.catch_up(client)
    numbers, lost = follower.sequence()
    follower.process.send_signal(signal.SIGINT)
    follower.process.wait(WAIT_SECONDS)
    missing = numbers[-1] - len(numbers)
    return Round(alone, beside, numbers[-1], missing, missing - lost)


def run(served: Daemon, client: hetsched.Client, jobs: int) -> tuple[float, float]:
    """Submit and cancel `jobs`; return the seconds, and the daemon's processor seconds."""
    process = psutil.Process(served.pid)
    begin, used = time.perf_counter(), process.cpu_times()
    for _ in range(jobs):
        client.submit("fft", batch="1x8x8", hold=True)
    client.cancel_all()
    seconds, after = time.perf_counter() - begin, process.cpu_times()
    return seconds, after.user + after.system - used.user - used.system


def one_more(client: hetsched.Client) -> int:
    job = client.submit("fft", batch="1x8x8", hold=True)
    client.cancel(job.id)
    return job.id


def _result(jobs: int, rounds: list[Round], growth: float) -> Result:
    walls = [round.beside[0] / round.alone[0] for round in rounds]
    used = [round.beside[1] / max(round.alone[1], 0.01) for round in rounds]
    rates = [jobs / round.alone[0] for round in rounds]
    events, lost = sum(r.events for r in rounds), sum(r.lost for r in rounds)
    unreported = sum(abs(round.unreported) for round in rounds)
    result = Result("slow_follower", "A follower that is stopped", ("what", "figure"))
    figures = {
        "submissions in each round": jobs,
        "rounds": len(rounds),
        "submissions and cancellations per second, alone": statistics.median(rates),
        "time with a stopped follower, ratio": statistics.median(walls),
        "processor time of the daemon, ratio": statistics.median(used),
        "events": events,
        "dropped events": lost,
        "growth of the daemon, MiB": growth,
    }
    result.rows += [(what, f"{figure:.4g}") for what, figure in figures.items()]
    result.data.append(figures)
    ratio = statistics.median(walls)
    result.bars += [
        Bar("ratio of seconds with a stopped follower", ratio, RATIO, at_least=False),
        Bar("dropped events that the follower wasn't told of", unreported, 0, at_least=False),
        Bar("growth of the daemon, MiB", growth, MAX_GROWTH, at_least=False),
    ]
    return result
