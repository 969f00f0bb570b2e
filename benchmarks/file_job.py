"""A job from file to file, against `cp` and the job in memory, and how much memory it takes.

Needs 8 GiB of disk in the temporary folder (TMPDIR).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import psutil

from benchmarks import contest
from benchmarks.contest import Found, Measured, milliseconds
from benchmarks.serving import Served, daemon
from benchmarks.warm_job import normal

TITLE = "From file to file"
CASES = ("1024x512x512 complex64",)
QUICK = ("128x512x512 complex64",)
ROUNDS = 5
DISTINCT = 32
"""Random planes, which are repeated: to make 2 GiB would take longer than the job."""
WARM_UP = 3
SAMPLING = 0.05
"""Seconds between two looks at the memory in use."""
COLUMNS = (
    "case", "file to file, ms", "cp, ms", "in memory, ms", "over cp and memory (quartiles)",
    "memory of all processes, MiB",
)  # fmt: skip


def measure(case: str, rounds: int) -> contest.Benchmarks:
    with tempfile.TemporaryDirectory(prefix="hs-files-") as name, daemon() as served:
        job = FileJob(served, Path(name), *case.split())
        for _ in range(WARM_UP):
            job.file()
            job.memory()
        contestants = {"file": job.file, "cp": job.copy, "memory": job.memory}
        found = contest.race(case, contestants, rounds)
        return found + contest.race(case, {"peak": job.peak}, 1, unit="byte")


class FileJob:
    def __init__(self, served: Served, folder: Path, batch: str, dtype: str) -> None:
        planes, *sides = map(int, batch.split("x"))
        self._served = served
        self._input, self._output, self._copy = (folder / f"{n}.npy" for n in ("in", "out", "cp"))
        block = normal((min(DISTINCT, planes), *sides), dtype)
        array = np.lib.format.open_memmap(self._input, "w+", dtype, (planes, *sides))
        for first in range(0, planes, len(block)):
            array[first : first + len(block)] = block
        array.flush()
        self._x, self._y = (served.client.empty(array.shape, dtype) for _ in "xy")
        self._x[...] = array

    def file(self) -> Measured:
        self._output.unlink(missing_ok=True)
        seconds = _timed(lambda: self._job(self._input, self._output))
        x, y = (np.load(path, mmap_mode="r") for path in (self._input, self._output))
        assert np.allclose(y[-1], np.fft.fft2(x[-1]), atol=1e-3 * x[-1].size ** 0.5)
        return Measured({"file": seconds})

    def memory(self) -> Measured:
        return Measured({"memory": _timed(lambda: self._job(self._x, self._y))})

    def copy(self) -> Measured:
        self._copy.unlink(missing_ok=True)
        cp = [shutil.which("cp") or "cp", "--reflink=never", "--sparse=never"]
        command = [*cp, self._input, self._copy]
        return Measured({"cp": _timed(lambda: subprocess.run(command, check=True))})

    def peak(self) -> Measured:
        """Watch the memory of the daemon with its children, and of this client."""
        self._output.unlink()
        job = self._served.client.submit("fft", self._input, out=self._output)
        daemon, most = psutil.Process(self._served.process.pid), 0
        while not job.done():
            family = [os.getpid(), daemon.pid, *(p.pid for p in daemon.children(recursive=True))]
            most = max(most, sum(map(private, family)))
            time.sleep(SAMPLING)
        return Measured({"peak": most})

    def _job(self, x: object, y: object) -> None:
        self._served.client.submit("fft", x, out=y).result()


def _timed(action: Callable[[], object]) -> float:
    os.sync()  # what earlier contestants wrote
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def private(pid: int) -> int:
    """Return the bytes of a process, with its libraries but without the arena."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    except OSError:  # it has just ended
        return 0
    fields = {line.split()[0]: int(line.split()[1]) * 1024 for line in lines}
    return fields["Pss:"] - fields["Pss_Shmem:"]


def row(case: str, found: Found, facts: object) -> tuple[str, ...]:
    file, copy, memory = (found[what] for what in ("file", "cp", "memory"))
    both = [a + b for a, b in zip(copy, memory, strict=True)]
    times = (milliseconds(seconds) for seconds in (file, copy, memory))
    return case, *times, contest.ratio(file, both), f"{found['peak'][0] / 2**20:.0f}"
