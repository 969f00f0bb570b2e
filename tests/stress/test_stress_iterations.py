"""Iterative jobs while devices and daemons die, leave and return: right, with little repeated."""

from __future__ import annotations

import contextlib
import random
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from served import CORES, Daemon, serving

import hetsched
from hetsched.errors import InputMissing
from hetsched.job import BALANCE_METHODS

pytestmark = pytest.mark.stress
MACHINE = (
    CORES
    + """
[[device]]
kind = "emulated"
name = "emu0"
clock = "real"
memory = "256MiB"
compute = { gap = "20us", rate = "20Gflop/s" }
h2d = { gap = "5us", rate = "10GB/s" }
d2h = { gap = "5us", rate = "10GB/s" }
"""
)
"""Cores in processes whose arrays are shared, and a GPU with rows that only its memory has."""
SOLVERS: Mapping[str, Mapping[str, Any]] = {
    "jacobi": {"n": 1500, "omega": 0.05, "tolerance": 1e-12},
    "pcg": {"grid": "50x50x50", "tolerance": 1e-10},
    "kmeans": {"count": 100000, "dimensions": 8, "clusters": 32, "tolerance": 0},
    "heat": {"grid": "512x512", "steps": 2000},
}
"""Jobs of a second or two, in double precision."""
EVENTS = ("a device dies", "the GPU dies", "all devices die", "a device leaves",
          "the job is cancelled and resumed", "the daemon dies")  # fmt: skip
MAX_DELAY = 0.4
"""The latest event, as a fraction of an undisturbed job's time."""
ACCURACY = 1e-7
"""Of the results, relative to their largest element: sums are in another order."""
EVERY = 1.0
"""Seconds between two checkpoints; a dead daemon may cost as many again for writing one."""
MAX_REPEATED = 0.02
"""Fraction of a job's iterations, besides one."""
ROWS, ITERATIONS = 240, 400


def kill_devices(daemon: Daemon, name: str, count: int, chance: random.Random) -> None:
    found = []
    for process in daemon.family():
        with contextlib.suppress(psutil.Error):
            if process.name().startswith(f"hetsched {name}"):
                found.append(process)
    for process in chance.sample(found, min(count, len(found))):
        process.kill()


def iterates(job: hetsched.Job) -> bool:
    """Wait until it has iterated, or ended; return whether it goes on."""
    while not job.done() and getattr(job.progress(), "iterations_per_second", None) is None:
        time.sleep(0.001)
    return not job.done()


class Disturbed:
    """Jobs of one solver under a daemon."""

    def __init__(self, daemon: Daemon, solver: str, chance: random.Random) -> None:
        self.daemon, self.solver, self.chance = daemon, solver, chance
        self.checkpoint = daemon.folder / f"{solver}.ckpt"
        with daemon.client() as client:
            for _ in range(3):  # the last one with learnt models
                job = self.submit(client)
                self.right = {name: np.array(y) for name, y in job.result(120).items()}
            assert job.report is not None
            self.iterations, self.seconds = job.report.iterations, job.report.seconds

    def submit(self, client: hetsched.Client, **options: Any) -> hetsched.Job:
        return client.submit(
            self.solver, dtype="float64", seed=5, **SOLVERS[self.solver], **options
        )

    def run(self, event: str) -> str:
        """Let it happen at some time of a job; return whether it came too late."""
        self.checkpoint.unlink(missing_ok=True)
        with self.daemon.client() as client:
            devices = client.devices()[0]
            job = self.submit(
                client, checkpoint=self.checkpoint, every=0.2,
                balance=self.chance.choice(BALANCE_METHODS),
            )  # fmt: skip
            if iterates(job):
                time.sleep(self.chance.random() * MAX_DELAY * self.seconds)
            is_late = job.done()
            job = self.happen(event, client, job, [each.name for each in devices])
            try:
                result = job.result(120)
            except InputMissing:  # it had ended, and its result was in the daemon's memory
                return "the job had ended"
            self.check(result, job)
            return "the job had ended" if is_late else event

    def happen(self, event: str, client: Any, job: Any, devices: list[str]) -> hetsched.Job:
        if event == "the daemon dies":
            self.daemon.kill()
            self.daemon.start()
        elif event == "the job is cancelled and resumed":
            job.cancel()
            with contextlib.suppress(CancelledError):
                job.result(120)
            if self.checkpoint.exists():
                some = self.chance.sample(devices, self.chance.randint(1, len(devices)))
                return self.submit(client, resume=self.checkpoint, devices=some)
        elif event == "a device leaves":
            guest = self.chance.choice(devices)
            client.switch_devices(disable=[guest])
            time.sleep(self.chance.random() * self.seconds / 2)
            client.switch_devices(enable=[guest])
        else:
            count = len(devices) if event.startswith("all") else 1
            kill_devices(self.daemon, "emu" if "GPU" in event else "", count, self.chance)
        return job

    def check(self, result: Any, job: hetsched.Job) -> None:
        assert job.report is not None and abs(job.report.iterations - self.iterations) <= 1
        for name, right in self.right.items():
            error = np.abs(np.asarray(result[name]) - right).max()
            assert error <= ACCURACY * (np.abs(right).max() or 1.0), (self.solver, name, error)


@pytest.mark.parametrize("solver", SOLVERS)
def test_whatever_happens_to_devices_the_result_is_that_of_an_undisturbed_job(
    stress: Any, solver: str
) -> None:
    chance, counts = random.Random(0), Counter[str]()
    with serving(MACHINE) as daemon:
        disturbed = Disturbed(daemon, solver, chance)
        for number in range(stress.scaled(len(EVENTS))):
            counts[disturbed.run(EVENTS[number % len(EVENTS)])] += 1
        assert daemon.stop() == 0
    stress.record_all(counts)


class Counted:
    """Jobs that count their iterations, in files of `folder`, and take some seconds."""

    def __init__(self, client: hetsched.Client, folder: Path) -> None:
        self.client, self.folder, self.job_number = client, folder, 0
        self.begin = 0.0

    def submit(self, **options: Any) -> hetsched.Job:
        self.job_number += 1
        self.job = self.client.submit(
            "toys:Diffusion", rows=ROWS, columns=1000, iterations=ITERATIONS, seed=1,
            counts=str(self.folder / str(self.job_number)), **options,
        )  # fmt: skip
        while self.iterations() < 1 and not self.job.done():
            time.sleep(0.001)
        self.begin = time.monotonic()
        return self.job

    def iterations(self) -> float:
        """Return how many have been computed, repeated ones included."""
        paths = self.folder.glob(f"{self.job_number}.*")
        return sum(path.stat().st_size for path in paths) / ROWS


SLOWED = """
[[device]]
kind = "emulated"
name = "core"
count = 2
clock = "real"
compute = { unit = "200us" }

[[device]]
kind = "emulated"
name = "emu0"
clock = "real"
memory = "256MiB"
compute = { unit = "60us" }
h2d = { gap = "5us", rate = "100MB/s" }
d2h = { gap = "5us", rate = "100MB/s" }
"""
"""The GPU has most of the rows, and can save them only now and then."""


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    with serving(SLOWED) as daemon:
        yield daemon


@pytest.mark.parametrize("device", ["core", "emu"])
def test_a_dead_device_costs_an_iteration_and_two_per_cent(
    stress: Any, daemon: Daemon, tmp_path: Path, device: str
) -> None:
    chance, repeated, losses = random.Random(0), [], 0
    with daemon.client() as client:
        jobs = Counted(client, tmp_path)
        jobs.submit().result(120)
        seconds = time.monotonic() - jobs.begin
        for _ in range(stress.scaled(5)):
            job = jobs.submit()
            time.sleep(chance.random() * MAX_DELAY * seconds)
            kill_devices(daemon, device, 1, chance)
            job.result(120)
            assert job.report is not None
            repeated.append(jobs.iterations() - ITERATIONS)
            losses += any(note.endswith(" were lost and repeated") for note in job.report.notes)
    stress.record("kills", len(repeated))
    stress.record("of these with rows lost", losses)
    stress.record("iterations repeated of 400, most", max(repeated))
    assert max(repeated) <= 1 + MAX_REPEATED * ITERATIONS
    assert losses or device == "core"


def test_a_dead_daemon_costs_the_work_since_a_checkpoint(
    stress: Any, daemon: Daemon, tmp_path: Path
) -> None:
    chance, lost = random.Random(0), []
    with daemon.client() as client:
        jobs = Counted(client, tmp_path)
        jobs.submit().result(120)
        seconds = time.monotonic() - jobs.begin
        for number in range(stress.scaled(5)):
            job = jobs.submit(checkpoint=tmp_path / f"{number}.ckpt", every=EVERY)
            time.sleep(chance.random() * MAX_DELAY * seconds)
            reached, took = jobs.iterations(), time.monotonic() - jobs.begin
            daemon.kill()
            daemon.start()
            job.result(120)
            assert job.report is not None
            lost.append((reached - (job.report.continued_after or 0)) * took / reached)
    stress.record("kills", len(lost))
    stress.record("seconds of work lost, most", max(lost))
    assert max(lost) <= 2 * EVERY
