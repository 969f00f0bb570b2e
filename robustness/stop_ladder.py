"""Stops in the middle of a job: in order, without waiting, at once; the next daemon always starts.

The job's chunks take longer than the scenario, so that only a second signal or SIGQUIT ends them.
"""

from __future__ import annotations

import random
import signal
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

from benchmarks.results import Bar, Result
from hetsched.job import JobState, Running
from robustness.daemon import Daemon, daemon
from robustness.scale import Scale

SHORT_CHUNKS = '[[device]]\nkind = "emulated"\ncompute = { unit = "20ms" }\n'
LONG_CHUNKS = '[[device]]\nkind = "emulated"\ncompute = { unit = "600s" }\n'
START_SECONDS = 60.0
STOP_SECONDS = 30.0
"""After this a stop counts as hung."""
GONE_SECONDS = 10.0


@dataclass(frozen=True)
class Stop:
    """One way to stop the daemon during a job, and the exit statuses that it may have."""

    name: str
    config: str
    signals: tuple[int, ...]
    status: int


STOPS = (
    Stop("SIGTERM", SHORT_CHUNKS, (signal.SIGTERM,), 0),
    Stop("SIGTERM twice", LONG_CHUNKS, (signal.SIGTERM, signal.SIGTERM), 0),
    Stop("SIGINT, SIGTERM", LONG_CHUNKS, (signal.SIGINT, signal.SIGTERM), 0),
    Stop("SIGQUIT", LONG_CHUNKS, (signal.SIGQUIT,), -signal.SIGQUIT),
)


def measure(scale: Scale) -> Result:
    rounds = scale.of(1, 5, 100)
    chance = random.Random(scale.seed)
    result = Result(
        "stop_ladder",
        "Stops during a job",
        ("stop", "rounds", "hung", "wrong exit status", "processes left", "slowest"),
    )
    failures, slowest = 0, 0.0
    for stop in STOPS:
        outcomes = [_outcome(stop, chance) for _ in range(rounds)]
        hung = sum(status is None for status, _, _ in outcomes)
        wrong = sum(status not in (None, stop.status) for status, _, _ in outcomes)
        left = sum(count for _, count, _ in outcomes)
        seconds = max(seconds for _, _, seconds in outcomes)
        failures += hung + wrong + left
        slowest = max(slowest, seconds)
        row = (stop.name, str(rounds), str(hung), str(wrong), str(left), f"{seconds:.2f} s")
        result.rows.append(row)
        result.data.append({"stop": stop.name, "outcomes": outcomes})
    result.bars.append(
        Bar("stops that hung, failed or left a process", failures, 0, at_least=False)
    )
    result.bars.append(Bar("seconds of the slowest stop", slowest, 10.0, at_least=False))
    return result


def _outcome(stop: Stop, chance: random.Random) -> tuple[int | None, int, float]:
    """Return the exit status (None: hung), the processes left, and the seconds to stop."""
    with daemon(stop.config) as served:
        children = _start_job(served)
        time.sleep(chance.uniform(0.0, 0.05))
        begin = time.monotonic()
        assert served.process is not None
        for index, number in enumerate(stop.signals):
            if index:
                _until_logged(served.log, "stopping: no new jobs")
            served.process.send_signal(number)
        status = served.wait(STOP_SECONDS)
        seconds = time.monotonic() - begin
        _, left = psutil.wait_procs(children, GONE_SECONDS)
        served.start()  # the next one finds folders and journal usable
        served.kill()  # it may have taken up the job
        return status, len(left), seconds


def _start_job(served: Daemon) -> list[psutil.Process]:
    """Start a job; return the device processes once it computes."""
    with served.client(reconnect=0.0) as client:
        states: list[JobState] = []
        client.submit("fft", batch="500x16x16", follow=states.append)
        deadline = time.monotonic() + START_SECONDS
        while not any(isinstance(s, Running) and s.stage == "computing" for s in states):
            if time.monotonic() > deadline:
                raise RuntimeError(f"the job hasn't started: {states}")
            time.sleep(0.005)
    return psutil.Process(served.pid).children(recursive=True)


def _until_logged(log: Path, text: str) -> None:
    deadline = time.monotonic() + STOP_SECONDS
    while text not in log.read_text(encoding="utf-8", errors="replace"):
        if time.monotonic() > deadline:
            raise RuntimeError(f"not logged: {text}")
        time.sleep(0.005)
