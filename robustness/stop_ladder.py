"""Stops in the middle of a job: in order, without waiting, at once; the next daemon continues it.

The job's chunks take longer than the scenario, so that only a second signal or SIGQUIT ends them.
"""

from __future__ import annotations

import itertools
import random
import signal
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from benchmarks.results import Bar, Result
from hetsched.job import Ended, Running
from robustness.daemon import Daemon, daemon
from robustness.scale import Scale

SHORT_CHUNKS = '[[device]]\nkind = "emulated"\ncompute = { unit = "20ms" }\n'
LONG_CHUNKS = '[[device]]\nkind = "emulated"\ncompute = { unit = "600s" }\n'
START_SECONDS = 60.0
STOP_SECONDS = 30.0
"""After this a stop counts as hung."""
GONE_SECONDS = 10.0
MAX_DELAY = 0.05
"""Seconds that a job computes before the stop."""


@dataclass(frozen=True)
class Stop:
    """One way to stop the daemon during a job, and the exit statuses that it may have."""

    name: str
    config: str
    signals: tuple[int, ...]
    status: int
    in_a_row: int = 25
    """Daemons stopped during one job, which is given up after three ends without order."""


STOPS = (
    Stop("SIGTERM", SHORT_CHUNKS, (signal.SIGTERM,), 0),
    Stop("SIGTERM twice", LONG_CHUNKS, (signal.SIGTERM, signal.SIGTERM), 0),
    Stop("SIGINT, SIGTERM", LONG_CHUNKS, (signal.SIGINT, signal.SIGTERM), 0),
    Stop("SIGQUIT", LONG_CHUNKS, (signal.SIGQUIT,), -signal.SIGQUIT, in_a_row=2),
)


def measure(scale: Scale) -> Result:
    rounds = scale.of(1, 5, 100)
    chance = random.Random(scale.seed)
    result = Result(
        "stop_ladder",
        "Stops during a job",
        ("stop", "rounds", "hung", "wrong exit status", "processes left", "jobs lost", "slowest"),
    )
    parts = [
        (stop, [chance.uniform(0.0, MAX_DELAY) for _ in range(min(stop.in_a_row, left))])
        for stop in STOPS
        for left in range(rounds, 0, -stop.in_a_row)
    ]
    rows = scale.map(lambda part: _stops_in_a_row(*part), parts)
    failures, slowest = 0, 0.0
    for stop in STOPS:
        own = (row for part, row in zip(parts, rows, strict=True) if part[0] is stop)
        outcomes = list(itertools.chain.from_iterable(own))
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


def _stops_in_a_row(stop: Stop, delays: Sequence[float]) -> list[StopOutcome]:
    """Stop one daemon after the other during the same job, each after its delay."""
    with daemon(stop.config) as served:
        with served.client(reconnect=0.0) as client:
            job = client.submit("fft", batch="500x16x16").id
        outcomes = [_outcome(served, stop, job, delay) for delay in delays]
        served.kill()  # its chunks take long
    return outcomes


def _outcome(served: Daemon, stop: Stop, job: int, delay: float) -> StopOutcome:
    """Stop the daemon `delay` seconds after `job` has begun to compute, and start the next one."""
    children = _device_processes(served, job)
    time.sleep(delay)
    logged, begin = served.log.stat().st_size, time.monotonic()
    assert served.process is not None
    for index, number in enumerate(stop.signals):
        if index:
            _until_logged(served.log, b"stopping: no new jobs", logged)
        served.process.send_signal(number)
    status = served.wait(STOP_SECONDS)
    seconds = time.monotonic() - begin
    _, left = psutil.wait_procs(children, GONE_SECONDS)
    served.start()
    with served.client(reconnect=0.0) as client:
        continues = not isinstance(client.show(job), Ended)
    return StopOutcome(status, len(left), seconds, continues)


def _device_processes(served: Daemon, job: int) -> list[psutil.Process]:
    """Return the device processes once the job computes."""
    deadline = time.monotonic() + START_SECONDS
    with served.client(reconnect=0.0) as client:
        while not (isinstance(state := client.show(job), Running) and state.stage == "computing"):
            if time.monotonic() > deadline:
                raise RuntimeError(f"the job doesn't compute: {state}")
            time.sleep(0.005)
    return psutil.Process(served.pid).children(recursive=True)


def _until_logged(log: Path, text: bytes, first: int) -> None:
    """Wait for `text` in what was logged from byte `first` on."""
    deadline = time.monotonic() + STOP_SECONDS
    while text not in log.read_bytes()[first:]:
        if time.monotonic() > deadline:
            raise RuntimeError(f"not logged: {text!r}")
        time.sleep(0.005)
