"""One big plane by a core team, beside what single cores make of it; many planes, beside them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

import hetsched
from benchmarks.results import Bar, Result
from benchmarks.stats import Sample, ratio
from hetsched.config import Config, DeviceConfig

CASES = {"1x4096x4096": (1, 4096, 4096), "256x512x512": (256, 512, 512)}
WARM_UP, JOBS = 40, 25
"""Until every variant is known, and the team has been worth its start and was tried."""
QUICK_WARM_UP, QUICK_JOBS = 8, 3
FASTER = 1.3
"""Of 2 cores. Arbitrary; an FFT of one plane is bound by memory for half of the time."""
UNAFFECTED = 0.95


def measure(quick: bool) -> Result:
    columns = ("case", "computed by", "submit to result, ms", "speed against single cores")
    result = Result("team", "Core teams", columns)
    warm, jobs = (QUICK_WARM_UP, QUICK_JOBS) if quick else (WARM_UP, JOBS)
    for name, shape in CASES.items():
        paired(result, name, shape, warm, jobs)
    return result


def paired(result: Result, name: str, shape: Sequence[int], warm: int, jobs: int) -> None:
    """Two engines, one with a team and one without, do one job each in turn."""
    with engine(team=True) as having, engine(team=False) as lacking:
        places = [(local, *arrays(local, shape)) for local in (having, lacking)]
        for place in places:
            for _ in range(warm):
                one(*place)
        pairs = [(one(*places[0]), one(*places[1])) for _ in range(jobs)]
    within, without = zip(*pairs, strict=True)
    compared = ratio([job.seconds for job in without], [job.seconds for job in within])
    add(result, name, within, compared.text())
    add(result, name, without, "")
    bar = f"{name}: speed with a team against single cores only"
    least = FASTER if shape[0] == 1 else UNAFFECTED
    result.bars.append(Bar(bar, compared.median, least))


def engine(team: bool) -> hetsched.Local:
    return hetsched.Local(Config(device=(DeviceConfig(kind="cpu", team=team),)), learn=False)


def arrays(local: hetsched.Local, shape: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    x, y = local.empty(shape, "complex64"), local.empty(shape, "complex64")
    x[...] = np.random.default_rng(1).standard_normal(shape[1:])
    y[...] = 0
    return x, y


@dataclass(frozen=True)
class Job:
    """Seconds from submit to result, and what computed it."""

    seconds: float
    devices: str


def one(local: hetsched.Local, x: np.ndarray, y: np.ndarray) -> Job:
    start = time.perf_counter()
    job = local.submit("fft", x, out=y)
    job.result()
    seconds = time.perf_counter() - start
    assert job.report is not None
    used = [device for device in job.report.devices if device.share]
    return Job(seconds, ", ".join(f"{one.device} ({one.variant})" for one in used))


def add(result: Result, name: str, jobs: Sequence[Job], against: str) -> None:
    sample = Sample(tuple(job.seconds for job in jobs))
    who = jobs[-1].devices
    result.rows.append((name, who, sample.text(), against))
    result.data.append({"case": name, "by": who, "seconds": sample.seconds})
    print(f"  {' | '.join(result.rows[-1])}", flush=True)
