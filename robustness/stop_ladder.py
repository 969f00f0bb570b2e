"""Stops in the middle of a job: in order, without waiting, at once; the next daemon continues it.

The job's chunks take longer than the scenario, so that only a second signal or SIGQUIT ends them.
"""

from __future__ import annotations

import random
import signal
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from benchmarks.results import Bar, Result
from hetsched.job import Ended, JobState, Running
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
        ("stop", "rounds", "hung", "wrong exit status", "processes left", "jobs lost", "slowest"),
    )
    delays = [(stop, chance.uniform(0.0, 0.05)) for _ in range(rounds) for stop in STOPS]
    every = scale.map(lambda part: _outcome(*part), delays)
    failures, slowest = 0, 0.0
    for index, stop in enumerate(STOPS):
        outcomes = every[index :: len(STOPS)]
        hung = sum(outcome.status is None for outcome in outcomes)
        wrong = sum(outcome.status not in (None, stop.status) for outcome in outcomes)
        left = sum(outcome.processes for outcome in outcomes)
        lost = sum(not outcome.continues for outcome in outcomes)
        seconds = max(outcome.seconds for outcome in outcomes)
        failures += hung + wrong + left + lost
        slowest = max(slowest, seconds)
        counts = (str(count) for count in (rounds, hung, wrong, left, lost))
        result.rows.append((stop.name, *counts, f"{seconds:.2f} s"))
        result.data.append({"stop": stop.name, "outcomes": [asdict(o) for o in outcomes]})
    result.bars.append(
        Bar("stops that hung, failed, left a process or lost a job", failures, 0, at_least=False)
    )
    result.bars.append(Bar("seconds of the slowest stop", slowest, 10.0, at_least=False))
    return result


@dataclass(frozen=True)
class StopOutcome:
    """Exit status (None: hung), processes left, seconds, whether the next daemon has the job."""

    status: int | None
    processes: int
    seconds: float
    continues: bool


def _outcome(stop: Stop, delay: float) -> StopOutcome:
    """Stop a daemon `delay` seconds after a job has begun to compute, and start the next one."""
    with daemon(stop.config) as served:
        job, children = _start_job(served)
        time.sleep(delay)
        begin = time.monotonic()
        assert served.process is not None
        for index, number in enumerate(stop.signals):
            if index:
                _until_logged(served.log, "stopping: no new jobs")
            served.process.send_signal(number)
        status = served.wait(STOP_SECONDS)
        seconds = time.monotonic() - begin
        _, left = psutil.wait_procs(children, GONE_SECONDS)
        served.start()
        with served.client(reconnect=0.0) as client:
            continues = not isinstance(client.show(job), Ended)
        served.kill()  # its chunks take long
        return StopOutcome(status, len(left), seconds, continues)


def _start_job(served: Daemon) -> tuple[int, list[psutil.Process]]:
    """Start a job; return its number and the device processes once it computes."""
    with served.client(reconnect=0.0) as client:
        states: list[JobState] = []
        job = client.submit("fft", batch="500x16x16", follow=states.append).id
        deadline = time.monotonic() + START_SECONDS
        while not any(isinstance(s, Running) and s.stage == "computing" for s in states):
            if time.monotonic() > deadline:
                raise RuntimeError(f"the job hasn't started: {states}")
            time.sleep(0.005)
    return job, psutil.Process(served.pid).children(recursive=True)


def _until_logged(log: Path, text: str) -> None:
    deadline = time.monotonic() + STOP_SECONDS
    while text not in log.read_text(encoding="utf-8", errors="replace"):
        if time.monotonic() > deadline:
            raise RuntimeError(f"not logged: {text}")
        time.sleep(0.005)
