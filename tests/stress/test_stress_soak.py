"""Mixed jobs and killed clients for long: memory, descriptors, threads, segments stay."""

from __future__ import annotations

import os
import random
import select
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from served import Daemon, serving

pytestmark = pytest.mark.stress
CONFIG = """
[[device]]
kind = "cpu"
[arena]
limit = "512MiB"
results_for = "1s"
warm_for = "0s"
[limits]
ended_jobs = "1MiB"
models = "1MiB"
[journal]
keep_jobs = 500
"""
"""Small limits: everything that has one is full after the first half."""
CLIENTS = 3
LIFETIMES = (0.5, 2.5)
"""Seconds that a connected client lives; most are killed in the middle of something."""
SAMPLES = 40
SETTLE_SECONDS = 30.0
MAX_GROWTH_MIB = 4.0
"""In the second half. Models still fill up in a short run."""
CLIENT = """
import random, sys
import numpy as np
import hetsched
from hetsched.errors import HetschedError

rng = random.Random(int(sys.argv[2]))
with hetsched.Client(endpoint=sys.argv[1], timeout=60) as client:
    print(flush=True)
    kinds = ["array", "generated", "refused", "cancelled", "kept", "files", "status"]
    while True:
        kind = rng.choice(kinds)
        shape = (rng.choice([1, 2, 8]), rng.choice([16, 64]), 32)  # few: models are full soon
        try:
            if kind == "array":
                client.submit("fft", np.ones(shape, "complex64")).result(60)
            elif kind == "generated":
                client.submit("fft", batch=shape, direction="inverse").result(60)
            elif kind == "refused":
                client.submit("fft", batch=shape, direction="x" * rng.randrange(20_000))
            elif kind == "cancelled":
                client.submit("fft", batch="64x256x256").cancel()
            elif kind == "kept":
                client.submit("fft", batch=shape)
            elif kind == "files":
                client.submit("fft", sys.argv[3]).result(60)
            else:
                client.status()
        except HetschedError:
            continue
"""


class Client:
    """A process that is to be killed some time after it has connected."""

    def __init__(self, daemon: Daemon, rng: random.Random) -> None:
        words = (daemon.folder / "run", rng.randrange(1 << 30), daemon.folder / "input.npy")
        self.process = subprocess.Popen(
            [sys.executable, "-c", CLIENT, *map(str, words)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self.lifetime, self.end = rng.uniform(*LIFETIMES), float("inf")

    def is_due(self, now: float) -> bool:
        if self.end == float("inf") and select.select([self.process.stdout], [], [], 0)[0]:
            self.end = now + self.lifetime
        return now > self.end

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


def abuse(daemon: Daemon, seconds: float, rng: random.Random) -> int:
    """Keep clients working, killing one after the other; return how many."""
    clients: list[Client] = []
    end, killed = time.monotonic() + seconds, 0
    while (now := time.monotonic()) < end:
        clients += [Client(daemon, rng) for _ in range(CLIENTS - len(clients))]
        time.sleep(0.05)
        for client in [each for each in clients if each.is_due(now)]:
            client.kill()
            clients.remove(client)
            killed += 1
    for client in clients:
        client.kill()
    return killed + len(clients)


@dataclass
class Sample:
    """What the daemon holds while no client is connected."""

    mib: float
    descriptors: int
    threads: int
    segments: int


def quiet_sample(daemon: Daemon, earlier: list[Sample]) -> Sample:
    """Return a sample once the descriptors are no more than before, or have settled."""
    process = psutil.Process(daemon.process.pid)
    least = min((each.descriptors for each in earlier), default=0)
    end = time.monotonic() + (SETTLE_SECONDS if earlier else 1.0)
    while process.num_fds() > least and time.monotonic() < end:
        time.sleep(0.3)
    folder = Path(f"/proc/{process.pid}/fd")
    links = [os.readlink(path) for path in folder.iterdir() if path.is_symlink()]
    return Sample(
        process.memory_full_info().uss / 2**20,
        len(links),
        process.num_threads(),
        sum("memfd:hetsched" in link for link in links),
    )


def test_mixed_jobs_and_killed_clients_leave_nothing_behind(stress: Any) -> None:
    seconds, rng, killed = stress.scaled(180), random.Random(0), 0
    samples: list[Sample] = []
    with serving(CONFIG) as daemon:
        np.save(daemon.folder / "input.npy", np.ones((4, 32, 32), "complex64"))
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            killed += abuse(daemon, seconds / SAMPLES, rng)
            samples.append(quiet_sample(daemon, samples))
        assert daemon.stop() == 0
    half = samples[len(samples) // 2 :]
    growth = half[-1].mib - half[0].mib
    stress.record("seconds", seconds)
    stress.record("clients killed", killed)
    stress.record("MiB of growth in the second half", growth)
    for what in ("descriptors", "threads", "segments"):
        counts = [getattr(sample, what) for sample in half]
        middle = max(1, len(counts) // 2)
        assert min(counts[middle:] or counts) <= min(counts[:middle]), (what, counts)
    assert growth <= MAX_GROWTH_MIB
