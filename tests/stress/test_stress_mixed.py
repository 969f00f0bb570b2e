"""Everything at once, and a neighbour that has stopped: right answers for all, and soon."""

from __future__ import annotations

import contextlib
import json
import random
import re
import signal
import statistics
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import CancelledError, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import psutil
import pytest
from served import CORES, HETSCHED, PATIENCE, Daemon, serving, until

import hetsched
from hetsched.errors import HetschedError

pytestmark = pytest.mark.stress
SIZES = ((400, 2), (3, 1), (3, 1), (3, 1), (1, 0), (60, 1))
"""Units of jobs, and milliseconds of each."""
FAULTS = ("segfault", "exit", "error", "SystemExit")
FAULT_CHANCE, CANCEL_CHANCE, VERIFY_CHANCE = 0.02, 0.05, 0.2
CLIENTS = 3
MAX_AHEAD = 5
"""Jobs of one client that haven't been waited for."""
KILL_PAUSES = (0.5, 2.5)
MIN_AGE_SECONDS = 2.0
"""Of a process that is killed: those that never get ready are another matter."""
MAX_FAILED = 0.02
"""Fraction of jobs that had no fault: one that meets three kills in a row is given up."""


@dataclass
class Submitted:
    """A job, its output array, and what that must hold."""

    job: Any
    target: np.ndarray
    value: float
    is_faulty: bool


class MixedClient:
    """Submits jobs of many sizes with priorities, faults and cancellations.

    Outputs go into arrays that are used again: a core that still writes for an earlier job would
    be found out.
    """

    def __init__(self, daemon: Daemon, seed: int, events: Counter[str]) -> None:
        self.daemon, self.seed, self.events = daemon, seed, events
        self.chance = random.Random(seed)
        self.finished: list[Submitted] = []

    def run(self, end: float) -> None:
        ahead: list[Submitted] = []
        with self.daemon.client() as self.client:
            while time.monotonic() < end:
                ahead.append(self.submit())
                if self.chance.random() < CANCEL_CHANCE:
                    ahead[-1].job.cancel()
                while len(ahead) > self.chance.randrange(MAX_AHEAD):
                    self.check(ahead.pop(0))
            for submitted in ahead:
                self.check(submitted)
            for each in self.finished:
                assert (each.target == each.value).all(), "changed after the end of its job"

    def submit(self) -> Submitted:
        units, milliseconds = self.chance.choice(SIZES)
        x = self.client.empty((units, 4), "float64")
        x[...] = self.chance.random()
        same = [each for each in self.finished if len(each.target) == units]
        if same and self.chance.random() < 0.5:
            target = same[0].target
            self.finished.remove(same[0])
        else:
            target = self.client.empty((units, 4), "float64")
        fault = self.chance.choice(FAULTS) if self.chance.random() < FAULT_CHANCE else ""
        self.events["submitted"] += 1
        marker = self.daemon.folder / f"{self.seed}-{self.events['submitted']}"
        job = self.client.submit(
            "toys:Faulty", x, out=target, units=units, milliseconds=milliseconds, fault=fault,
            marker=str(marker), priority=self.chance.randint(-5, 5),
            verify=self.chance.random() < VERIFY_CHANCE,
        )  # fmt: skip
        return Submitted(job, target, 2 * float(x[0, 0]) + 1, bool(fault))

    def check(self, submitted: Submitted) -> None:
        try:
            submitted.job.result(150)
        except CancelledError:
            self.events["cancelled"] += 1
        except HetschedError:
            self.events["failed as asked for" if submitted.is_faulty else "failed"] += 1
        else:
            assert (submitted.target == submitted.value).all()
            self.events["done"] += 1
            self.finished.append(submitted)


def kill_some(daemon: Daemon, end: float) -> int:
    """Kill device processes until `end`; return how many."""
    chance, kills = random.Random(0), 0
    while time.monotonic() < end:
        time.sleep(chance.uniform(*KILL_PAUSES))
        with contextlib.suppress(psutil.Error, IndexError):
            oldest = time.time() - MIN_AGE_SECONDS
            found = [each for each in daemon.family() if each.name().startswith("hetsched cpu")]
            chance.choice([each for each in found if each.create_time() < oldest]).kill()
            kills += 1
    return kills


def test_mixed_jobs_are_right_while_devices_die(stress: Any) -> None:
    events = Counter[str]()
    with serving(CORES) as daemon, ThreadPoolExecutor(CLIENTS) as pool:
        end = time.monotonic() + stress.scaled(60)
        clients = [MixedClient(daemon, seed, events) for seed in range(CLIENTS)]
        running = [pool.submit(client.run, end) for client in clients]
        events["kills"] = kill_some(daemon, end)
        for each in running:
            each.result()
        assert daemon.stop() == 0
    stress.record_all(events)
    assert events["failed"] <= max(2, MAX_FAILED * events["submitted"])


# ---- a follower that is stopped

FOLLOWED = """
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
"""What the daemon keeps of ended jobs is full after the first rounds."""
ROUNDS = 5
MAX_RATIO = 1.2
MAX_GROWTH_MIB = 5.0


class Follower:
    """`hetsched follow`, whose output goes to files."""

    def __init__(self, daemon: Daemon, client: hetsched.Client) -> None:
        self.client, self.out, self.err = client, daemon.folder / "events", daemon.folder / "notes"
        with self.out.open("wb") as out, self.err.open("wb") as err:
            self.process = subprocess.Popen(
                [HETSCHED, "follow", "--json"], stdout=out, stderr=err, env=daemon.environment
            )
        until(self.sees_a_new_job)

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        self.process.send_signal(signal.SIGSTOP)
        yield
        self.process.send_signal(signal.SIGCONT)

    def sees_a_new_job(self) -> bool:
        """Whether it prints its events soon; those of the first ones may be lost."""
        job = self.client.submit("fft", batch="1x8x8", hold=True)
        self.client.cancel(job.id)
        for _ in range(100):
            if f'"job":{job.id},"state":"cancelled"' in self.out.read_text():
                return True
            time.sleep(0.01)
        return False

    def lost(self) -> int:
        """End it, and return how many events it lost: all of which it was told of."""
        until(self.sees_a_new_job)
        self.process.send_signal(signal.SIGINT)
        self.process.wait(PATIENCE)
        numbers = [json.loads(line)["sequence"] for line in self.out.read_text().splitlines()]
        told = re.findall(r"^(\d+) events? (?:was|were) lost", self.err.read_text(), re.MULTILINE)
        assert numbers[-1] - len(numbers) == sum(map(int, told))
        return sum(map(int, told))


def hold_and_cancel(client: hetsched.Client, jobs: int) -> float:
    """Return the seconds."""
    begin = time.perf_counter()
    for _ in range(jobs):
        client.submit("fft", batch="1x8x8", hold=True)
    client.cancel_all()
    return time.perf_counter() - begin


def test_a_stopped_follower_costs_nothing_and_is_told_what_it_lost(stress: Any) -> None:
    jobs, ratios, lost = stress.scaled(500), [], 0
    with serving(FOLLOWED) as daemon, daemon.client() as client:
        for _ in range(2):
            hold_and_cancel(client, jobs)
        process = psutil.Process(daemon.process.pid)
        before = process.memory_full_info().uss
        for _ in range(ROUNDS):
            alone = hold_and_cancel(client, jobs)
            follower = Follower(daemon, client)
            with follower.stopped():
                ratios.append(hold_and_cancel(client, jobs) / alone)
            lost += follower.lost()
        growth = (process.memory_full_info().uss - before) / 2**20
    stress.record("jobs", 2 * ROUNDS * jobs)
    stress.record("events lost", lost)
    stress.record("ratio of times", statistics.median(ratios))
    stress.record("MiB of growth", growth)
    assert statistics.median(ratios) <= MAX_RATIO
    assert growth <= MAX_GROWTH_MIB
