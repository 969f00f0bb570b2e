"""Measures what it costs cores to keep step: a barrier, and an iteration whose kernels do little.

The barrier is the one that the product uses, between processes pinned to two cores. Iterations are
those of real device processes, with two stages, three reductions and the halos of 8 rows: nearly
all of their time is overhead.
"""

from __future__ import annotations

import mmap
import os
import select
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from queue import Queue
from typing import Any

import numpy as np

from benchmarks.results import Bar, Result
from benchmarks.stats import Sample
from hetsched.config import DeviceConfig
from hetsched.device import DeviceInfo
from hetsched.device_process.epochs import SPIN_SECONDS
from hetsched.devices.cpu import cores
from hetsched.devices.probe import ProcessSpec
from hetsched.engine.processes.process import DeviceProcess
from hetsched.transport.control import IterationControl, control_words
from hetsched.transport.device_messages import Attach, Hello

TESTS = Path(__file__).parent.parent / "tests"
sys.path.insert(0, str(TESTS))

import iterating_bench  # noqa: E402 - tests/ is not a package
from diffusing_workload import DiffusionParams  # noqa: E402

LIMIT = 30e-6
"""Seconds per barrier of two cores."""
BARRIERS, QUICK_BARRIERS = 20_000, 2_000
ITERATIONS, QUICK_ITERATIONS = 20_000, 1_000
ROUNDS, QUICK_ROUNDS = 15, 3
ROWS = 8


def measure(quick: bool) -> Result:
    columns = ("what", "median (least), microseconds", "at most")
    result = Result("barrier", "Keeping step in iterations", columns)
    rounds = QUICK_ROUNDS if quick else ROUNDS
    allowed = cores.allowed()
    if len(allowed) > 1:
        count = (QUICK_BARRIERS if quick else BARRIERS) // rounds
        seconds = barriers(allowed[:2], count, rounds)
        add(result, "a barrier of two cores", seconds, LIMIT)
    iterations = QUICK_ITERATIONS if quick else ITERATIONS
    for used in range(1, min(2, len(allowed)) + 1):
        seconds = iterated(allowed[:used], iterations // rounds, rounds)
        add(result, f"an iteration of tiny kernels, cores: {used}", seconds, None)
    return result


def barriers(pair: list[int], count: int, rounds: int) -> Sample:
    """Return the seconds of one barrier between processes pinned to two cores, in each round."""
    words = np.frombuffer(mmap.mmap(-1, 4 * control_words(2)), np.int32)
    control = IterationControl(words, SPIN_SECONDS)

    def meet_often(slot: int) -> float:
        begin = time.perf_counter()
        for _ in range(count):
            arrived = control.arrive(slot)
            while not control.wait_for([1 - slot], arrived):
                pass
        return (time.perf_counter() - begin) / count

    other = forked(lambda: [meet_often(1) for _ in range(rounds + 1)], pair[1])
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {pair[0]})
    seconds = [meet_often(0) for _ in range(rounds + 1)]
    os.sched_setaffinity(0, before)
    os.waitpid(other, 0)
    return Sample(tuple(seconds[1:]))


def forked(work: Callable[[], object], core: int) -> int:
    """Start a process on `core` that works and ends; return its id."""
    pid = os.fork()
    if pid:
        return pid
    try:
        os.sched_setaffinity(0, {core})
        work()
    finally:
        os._exit(0)


class CoreProcesses:
    """A device process for each of these cores, for `iterating_bench`."""

    def __init__(self, used: Sequence[int]) -> None:
        self.count = len(used)
        self.events: Queue[tuple[int, Any]] = Queue()
        os.environ["PYTHONPATH"] = os.pathsep.join([str(TESTS), *filter(None, sys.path)])
        self._processes = [
            DeviceProcess(
                ProcessSpec(
                    package="hetsched.devices.cpu",
                    device=DeviceInfo(
                        name=f"cpu{n}", kind="cpu", identity="benchmark", cores=(core,)
                    ),
                    config=DeviceConfig(kind="cpu"),
                ),
                None,
            )
            for n, core in enumerate(used)
        ]
        self._readers = [
            threading.Thread(target=self._read, args=numbered, daemon=True)
            for numbered in enumerate(self._processes)
        ]
        for reader in self._readers:
            reader.start()

    def attach(self, command: Attach, fd: int) -> None:
        for process in self._processes:
            process.send(command, [fd])

    def order(self, slot: int, command: Any) -> None:
        self._processes[slot].send(command)

    def close(self) -> None:
        for process in self._processes:
            process.stop()
        for process, reader in zip(self._processes, self._readers, strict=True):
            reader.join()
            process.join(10.0, 10.0)

    def _read(self, slot: int, process: DeviceProcess) -> None:
        while not process.ended:
            select.select([process, process.pidfd], [], [])
            for event in process.receive():
                if not isinstance(event, Hello):
                    self.events.put((slot, event))


def iterated(used: list[int], count: int, rounds: int) -> Sample:
    """Return the seconds of one iteration on these cores, in each round."""
    x = np.random.default_rng(1).standard_normal((ROWS, 4))
    never = -1.0  # converged
    params = DiffusionParams(rows=ROWS, iterations=count * (rounds + 1), tolerance=never)
    shares = dict.fromkeys(range(len(used)), ROWS // len(used))
    seconds = []
    with tempfile.TemporaryDirectory(prefix="hs-") as cache:
        os.environ["XDG_CACHE_HOME"] = cache
        bench = iterating_bench.IteratingBench(params, x, CoreProcesses(used))
        bench.prepare()
        for number in range(rounds + 1):
            first, last = number * count, (number + 1) * count
            begin = time.perf_counter()
            previous = tuple(shares) if first else ()
            bench.iterate(shares, first=first + bool(first), last=last, previous=previous)
            bench.stopped(len(used))
            seconds.append((time.perf_counter() - begin) / count)
        bench.close()
    return Sample(tuple(seconds[1:]))


def add(result: Result, what: str, sample: Sample, limit: float | None) -> None:
    micros = [seconds * 1e6 for seconds in sample.seconds]
    value = statistics.median(micros)
    text = "" if limit is None else f"{limit * 1e6:g}"
    result.rows.append((what, f"{value:.1f} ({min(micros):.1f})", text))
    result.data.append({"what": what, "seconds": sample.seconds, "limit": limit})
    if limit is not None:
        result.bars.append(Bar(f"{what}, microseconds", value, limit * 1e6, at_least=False))
    print(f"  {' | '.join(result.rows[-1])}", flush=True)
