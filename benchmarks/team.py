"""One large plane on a core team, compared with single cores; the team's cost to other jobs."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

import hetsched
from benchmarks.paired import interleave
from benchmarks.results import Bar, Result
from benchmarks.serving import places
from benchmarks.stats import Sample, ratio
from hetsched.config import Config, DeviceConfig

CASES = {
    "1x4096x4096": ((1, 4096, 4096), 25, 1.3),
    "256x512x512": ((256, 512, 512), 25, 0.95),
    "1x64x64": ((1, 64, 64), 200, 0.95),
}
"""Shape, rounds, minimum speed over an engine without a team. Arbitrary: an FFT of one large plane
is memory-bound for half of its time."""
WARM_UP, QUICK_WARM_UP, QUICK_ROUNDS = 40, 8, 3
"""Jobs until every variant has been measured and the team has been started and tried."""
PROCESSES = 7
UNAFFECTED = 0.9
"""Minimum speed of a whole process, which takes 1.4 s within 10 %."""
SETTLE = 0.02


def measure(quick: bool) -> Result:
    columns = ("case", "with a team, ms", "computed by", "without, ms", "speed over that")
    result = Result("team", "Core teams", columns)
    for name, (shape, rounds, least) in CASES.items():
        jobs(result, name, shape, QUICK_ROUNDS if quick else rounds, least, quick)
    processes(result, QUICK_ROUNDS if quick else PROCESSES)
    return result


def jobs(
    result: Result, name: str, shape: Sequence[int], rounds: int, least: float, quick: bool
) -> None:
    """Run one job each in turn on two engines, with and without a team: submit to result."""
    with engine(team=True) as having, engine(team=False) as lacking:
        contestants = {"with": warm_job(having, shape), "without": warm_job(lacking, shape)}
        for job in contestants.values():
            for _ in range(QUICK_WARM_UP if quick else WARM_UP):
                job()
        samples = interleave(contestants, rounds, SETTLE)
        x, y = arrays(having, shape)
        used = having.submit("fft", x, out=y)
        used.result()
    assert used.report is not None
    devices = [one for one in used.report.devices if one.share]
    by = ", ".join(f"{one.device} ({one.variant})" for one in devices)
    add(result, name, samples, by, least)


def processes(result: Result, rounds: int) -> None:
    """Run `hetsched run` with one large plane: whole processes, from start to end."""
    with tempfile.TemporaryDirectory(prefix="hs-") as folder:
        contestants = {
            name: process(Path(folder), name, team)
            for name, team in (("with", "true"), ("without", "false"))
        }
        for run in contestants.values():
            for _ in range(4):
                run()
        samples = interleave(contestants, rounds, SETTLE)
    add(result, "`hetsched run`, 1x4096x4096", samples, "", UNAFFECTED)


def process(folder: Path, name: str, team: str) -> Callable[[], float]:
    """Return a function that runs a process with separate models."""
    config = folder / f"{name}.toml"
    config.write_text(f"[[device]]\nkind = 'cpu'\nteam = {team}\n", encoding="utf-8")
    command = [sys.executable, "-m", "hetsched.cli.main", "run", "fft", "--batch", "1x4096x4096"]

    def run() -> float:
        with places(str(folder / name)):
            start = time.perf_counter()
            subprocess.run([*command, "--config", config], check=True, capture_output=True)
            return time.perf_counter() - start

    return run


@contextmanager
def engine(team: bool) -> Iterator[hetsched.Local]:
    device = DeviceConfig(kind="cpu", team=team)
    with hetsched.Local(Config(device=(device,)), learn=False) as local:
        yield local


def warm_job(local: hetsched.Local, shape: Sequence[int]) -> Callable[[], float]:
    x, y = arrays(local, shape)

    def run() -> float:
        start = time.perf_counter()
        local.submit("fft", x, out=y).result()
        return time.perf_counter() - start

    return run


def arrays(local: hetsched.Local, shape: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    x, y = local.empty(shape, "complex64"), local.empty(shape, "complex64")
    x[...] = np.random.default_rng(1).standard_normal(shape[1:])
    y[...] = 0
    return x, y


def add(result: Result, name: str, samples: Mapping[str, Sample], by: str, least: float) -> None:
    within, without = samples["with"], samples["without"]
    compared = ratio(without.seconds, within.seconds)
    result.rows.append((name, within.text(), by, without.text(), compared.text()))
    seconds = {key: sample.seconds for key, sample in samples.items()}
    result.data.append({"case": name, "by": by, "seconds": seconds})
    result.bars.append(Bar(f"{name}: speed over no team", compared.median, least))
    print(f"  {' | '.join(result.rows[-1])}", flush=True)
