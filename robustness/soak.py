"""Mixed jobs for long, clients killed at random: memory, descriptors, threads and segments flat.

Clients are processes with arrays, generated inputs, files; refused, cancelled, unfollowed jobs.
Every second or two one is killed. The slope is fitted to the daemon's private memory after the
warm-up, each sample taken with no client connected.
"""

from __future__ import annotations

import random
import select
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.results import Bar, Result
from robustness.daemon import Daemon, daemon
from robustness.scale import Scale

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
"""Small limits: everything that has one is full after the warm-up."""
CLIENTS = 3
KILL_AFTER = (0.5, 2.5)
"""Seconds that a connected client lives; most are killed in the middle of something."""
WARM_UP_FRACTION = 0.5
SAMPLES = 40
"""Samples in a run, at least: between two of them clients work and are killed."""
MAX_MIB_PER_HOUR = 1.0
MAX_SHORT_GROWTH_MIB = 4.0
SETTLE_SECONDS = 30.0

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
        batch = "x".join(map(str, shape))
        try:
            if kind == "array":
                x = np.ones(shape, "complex64")
                client.submit("fft", x, direction="forward").result(60)
            elif kind == "generated":
                client.submit("fft", batch=batch, direction="inverse").result(60)
            elif kind == "refused":
                client.submit("fft", batch=batch, direction="x" * rng.randrange(20_000)).result(60)
            elif kind == "cancelled":
                client.submit("fft", batch="64x256x256", direction="forward").cancel()
            elif kind == "kept":
                client.submit("fft", batch=batch, direction="forward")
            elif kind == "files":
                client.submit("fft", sys.argv[1] + "/input.npy", direction="forward").result(60)
            else:
                client.status()
        except (HetschedError, AttributeError, TypeError):
            continue
"""


@dataclass
class Sample:
    """What the daemon holds at one time; `seconds` since the start."""

    seconds: float
    private_bytes: int
    descriptors: int
    threads: int
    segments: int


def measure(scale: Scale) -> Result:
    figures = run(scale.of(8.0, 180.0, 1800.0), scale.seed)
    result = Result(
        "soak",
        "Mixed jobs, clients killed at random",
        ("seconds", "clients killed", "memory slope", "descriptors", "threads", "segments"),
    )
    result.rows.append(
        (
            f"{figures['seconds']:.0f}",
            f"{figures['killed']:.0f}",
            f"{figures['mib_per_hour']:.2f} MiB/h",
            *(f"{figures[name]:+.0f}" for name in ("descriptors", "threads", "segments")),
        )
    )
    result.data.append(figures)
    result.bars += [
        Bar("descriptors left over", figures["descriptors"], 0, at_least=False),
        Bar("threads left over", figures["threads"], 0, at_least=False),
        Bar("segments left over", figures["segments"], 0, at_least=False),
    ]
    result.bars.append(Bar("daemon alive", figures["alive"], 1))
    growth, rate = figures["growth_mib"], figures["mib_per_hour"]
    if scale.name == "long":
        result.bars.append(Bar("MiB per hour", rate, MAX_MIB_PER_HOUR, at_least=False))
    elif scale.name == "short":  # models still fill up, and a slope of minutes means little
        result.bars.append(Bar("MiB since warm-up", growth, MAX_SHORT_GROWTH_MIB, at_least=False))
    return result


def run(seconds: float, seed: int) -> dict[str, Any]:
    """Load a daemon for `seconds`; return slopes, what was left over, and samples.

    Of these, seconds and private MiB.
    """
    rng = random.Random(seed)
    killed = 0
    with daemon(CONFIG) as served:
        np.save(served.folder / "input.npy", np.ones((4, 32, 32), "complex64"))
        begin = time.monotonic()
        samples: list[Sample] = []
        while time.monotonic() - begin < seconds and served.is_alive:
            pause = seconds / SAMPLES
            killed += _abuse(served.folder, min(pause, 15.0), rng)
            samples.append(_quiet_sample(served, begin, samples))
        alive = served.is_alive
    warm = samples[int(len(samples) * WARM_UP_FRACTION) :]
    return {
        "seconds": samples[-1].seconds,
        "killed": killed,
        "alive": float(alive),
        "mib_per_hour": slope(warm),
        "growth_mib": (warm[-1].private_bytes - warm[0].private_bytes) / (1 << 20),
        "descriptors": min_growth([sample.descriptors for sample in warm]),
        "threads": min_growth([sample.threads for sample in warm]),
        "segments": min_growth([sample.segments for sample in warm]),
        "private_mib": warm[-1].private_bytes / (1 << 20),
        "samples": " ".join(f"{s.seconds:.0f}:{s.private_bytes / (1 << 20):.1f}" for s in samples),
    }


def slope(samples: list[Sample]) -> float:
    """Return MiB per hour of a straight line through the private memory."""
    if len(samples) < 3:
        return 0.0
    hours = np.array([sample.seconds / 3600 for sample in samples])
    mib = np.array([sample.private_bytes / (1 << 20) for sample in samples])
    return float(np.polyfit(hours, mib, 1)[0])


def min_growth(counts: list[int]) -> int:
    """Return by how much the lowest count of the second half exceeds that of the first."""
    half = max(1, len(counts) // 2)
    return max(0, min(counts[half:] or counts) - min(counts[:half]))


@dataclass
class _Client:
    """A client process; `end` is when to kill it, None until it is connected."""

    process: subprocess.Popen[bytes]
    lifetime: float
    end: float | None = None

    @classmethod
    def start(cls, folder: Path, rng: random.Random) -> _Client:
        words = [sys.executable, "-c", CLIENT, str(folder), str(rng.randrange(1 << 30))]
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        return cls(process, rng.uniform(*KILL_AFTER))

    def is_due(self, now: float) -> bool:
        assert self.process.stdout is not None
        if self.end is None and select.select([self.process.stdout], [], [], 0)[0]:
            self.end = now + self.lifetime
        return self.end is not None and now > self.end

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


def _abuse(folder: Path, seconds: float, rng: random.Random) -> int:
    """Keep clients working, killing one after the other; return how many."""
    clients: list[_Client] = []
    end = time.monotonic() + seconds
    killed = 0
    while (now := time.monotonic()) < end:
        clients += [_Client.start(folder, rng) for _ in range(CLIENTS - len(clients))]
        time.sleep(0.05)
        due = [client for client in clients if client.is_due(now)]
        killed += len(due)
        clients = [client for client in clients if client not in due]
        for client in due:
            client.kill()
    for client in clients:
        client.kill()
    return killed + len(clients)


def _quiet_sample(served: Daemon, begin: float, earlier: list[Sample]) -> Sample:
    """Sample once the daemon is quiet: until its descriptors are no more than before."""
    deadline = time.monotonic() + SETTLE_SECONDS
    while True:
        time.sleep(0.3)
        usage = served.usage()
        segments = _segments(served.pid)
        is_quiet = not earlier or usage["descriptors"] <= min(s.descriptors for s in earlier)
        if is_quiet or time.monotonic() > deadline:
            break
    return Sample(
        time.monotonic() - begin,
        usage["private_bytes"],
        usage["descriptors"],
        usage["threads"],
        segments,
    )


def _segments(pid: int) -> int:
    """Count the shared memory segments that a process has open."""
    links = []
    for link in Path(f"/proc/{pid}/fd").iterdir():
        try:
            links.append(str(link.readlink()))
        except OSError:
            continue
    return sum("memfd:hetsched" in link for link in links)
