"""A job from file to file: its memory, and its time relative to `cp` and the job in the arena.

Needs 8 GiB of disk in the temporary folder (TMPDIR).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.footprint import Footprint
from benchmarks.paired import interleave
from benchmarks.peers.fft_case import worst
from benchmarks.results import Bar, Result
from benchmarks.serving import Served, daemon
from benchmarks.stats import Sample, quartiles

PLANES, QUICK_PLANES = 1024, 64
SIDE = 512
DISTINCT = 32
"""Number of random planes, which are repeated: generating 2 GiB would take longer than the job."""
ROUNDS, QUICK_ROUNDS = 7, 3
WARM_UP = 4
MEMORY = (400 + 256) << 20
SLOWER = 1.3


def measure(quick: bool) -> Result:
    planes = QUICK_PLANES if quick else PLANES
    columns = ("case", "file to file, s", "cp, s", "arena, s", "time / (cp + arena)", "peak, MiB")
    result = Result("file_job", "From file to file", columns)
    with tempfile.TemporaryDirectory(prefix="hs-files-") as name, daemon() as served:
        folder = Path(name)
        write_input(folder / "in.npy", planes)
        job = FileJob(served, folder)
        for _ in range(WARM_UP):
            job.file()
            job.arena()
        job.check()
        with Footprint([served.process.pid, os.getpid()]) as footprint:
            job.file()
        contestants = {"file": job.file, "cp": job.copy, "arena": job.arena}
        samples = interleave(contestants, QUICK_ROUNDS if quick else ROUNDS)
    add(result, planes, samples, footprint)
    return result


def write_input(path: Path, planes: int) -> None:
    generator = np.random.default_rng(1)
    shape = (DISTINCT, SIDE, SIDE)
    block = np.empty(shape, "complex64")
    block.real, block.imag = generator.standard_normal((2, *shape), dtype="float32")
    array = np.lib.format.open_memmap(path, "w+", "complex64", (planes, SIDE, SIDE))
    for first in range(0, planes, DISTINCT):
        array[first : first + DISTINCT] = block[: planes - first]
    array.flush()


class FileJob:
    """The three operations that are timed, on one input."""

    def __init__(self, served: Served, folder: Path) -> None:
        self._client = served.client
        self._input, self._output, self._copy = (
            folder / f"{n}.npy" for n in ("in", "out", "copy")
        )
        values = np.load(self._input, mmap_mode="r")
        self._x = self._client.empty(values.shape, "complex64")
        self._y = self._client.empty(values.shape, "complex64")
        self._x[...] = values

    def file(self) -> float:
        self._output.unlink(missing_ok=True)
        os.sync()
        start = time.perf_counter()
        self._client.submit("fft", self._input, out=self._output).result()
        return time.perf_counter() - start

    def arena(self) -> float:
        start = time.perf_counter()
        self._client.submit("fft", self._x, out=self._y).result()
        return time.perf_counter() - start

    def copy(self) -> float:
        """Copy to a new file."""
        self._copy.unlink(missing_ok=True)
        os.sync()
        command = [shutil.which("cp") or "cp", "--reflink=never", "--sparse=never"]
        start = time.perf_counter()
        subprocess.run([*command, self._input, self._copy], check=True)
        return time.perf_counter() - start

    def check(self) -> None:
        """Check some planes. Raises RuntimeError."""
        x, y = np.load(self._input, mmap_mode="r"), np.load(self._output, mmap_mode="r")
        planes = range(0, len(x), max(1, len(x) // 16))
        if x.shape != y.shape or worst(x, y, planes) > 1e-5:
            raise RuntimeError(f"{self._output}: wrong by {worst(x, y, planes):.1e}")


def add(result: Result, planes: int, samples: dict[str, Sample], footprint: Footprint) -> None:
    file, copy, arena = (samples[name] for name in ("file", "cp", "arena"))
    rounds = zip(file.seconds, copy.seconds, arena.seconds, strict=True)
    low, middle, high = quartiles(sorted(f / (c + a) for f, c, a in rounds))
    times = tuple(f"{sample.median:.2f} ({sample.least:.2f})" for sample in (file, copy, arena))
    ratio = f"{middle:.2f} ({low:.2f} to {high:.2f})"
    mebibytes = footprint.peak / 2**20
    name = f"{planes}x{SIDE}x{SIDE} complex64"
    result.rows.append((name, *times, ratio, f"{mebibytes:.0f}"))
    seconds = {key: sample.seconds for key, sample in samples.items()}
    found = {"ratio": middle, "peak_bytes": footprint.peak, "samples": footprint.samples}
    result.data.append({"planes": planes, "seconds": seconds, **found})
    result.bars = [
        Bar("time against cp and the arena job", middle, SLOWER, at_least=False),
        Bar("memory of all processes, MiB", mebibytes, MEMORY / 2**20, at_least=False),
    ]
