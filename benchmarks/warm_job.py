"""A warm FFT job through the daemon, compared with direct library calls: submit to result."""

from __future__ import annotations

import itertools
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hetsched
from benchmarks import machine
from benchmarks.children import Peers
from benchmarks.paired import fastest, interleave
from benchmarks.peers.fft_case import fill, worst
from benchmarks.results import Bar, Result
from benchmarks.serving import Served, daemon, report
from benchmarks.stats import Sample, ratio

PEERS = ("pyfftw_peer", "dfti_peer", "mkl_fft_peer", "ducc_peer", "scipy_peer")
MKL = ("dfti_peer", "mkl_fft_peer")
SHAPES = ((256, 512, 512), (1024, 256, 256), (64, 500, 500))
DTYPES = ("complex64", "complex128")
LIMITS = {"complex64": 1e-5, "complex128": 1e-13}
ROUNDS, QUICK_ROUNDS = 11, 3
LEAST_WARM_UP, SETTLED, MOST_WARM_UP = 30, 4, 50
"""Runs: slow variants are retried until about the 25th, in case a measurement was an outlier; then
until this many in a row used the same variants, or an arbitrary maximum."""


def measure(quick: bool) -> Result:
    return compare("warm_job", "Warm FFT job", quick, PEERS, None)


def measure_plain(quick: bool, environment: Path) -> Result:
    """Measure the same from an environment without MKL, against the peers without MKL."""
    peers = tuple(peer for peer in PEERS if peer not in MKL)
    title = "Warm FFT job, MKL not installed"
    return compare("warm_job_plain", title, quick, peers, environment)


def compare(
    name: str, title: str, quick: bool, peers: tuple[str, ...], environment: Path | None
) -> Result:
    columns = ("case", "hetsched, ms", "variant", "fastest peer, ms", "peer", "speed against it")
    result = Result(name, title, (*columns, "against SciPy"))
    shapes = ((32, 512, 512), (64, 100, 100)) if quick else SHAPES
    with daemon(environment=environment) as served:
        for shape, dtype in itertools.product(shapes, DTYPES):
            case = {"shape": shape, "dtype": dtype, "threads": len(os.sched_getaffinity(0))}
            add(result, one_case(served, case, peers, QUICK_ROUNDS if quick else ROUNDS))
    result.bars = bars(result.data)
    return result


def one_case(
    served: Served, case: dict[str, Any], peers: tuple[str, ...], rounds: int
) -> dict[str, Any]:
    limit = LIMITS[case["dtype"]]
    client = served.client
    x, y = client.empty(case["shape"], case["dtype"]), client.empty(case["shape"], case["dtype"])
    fill(x)
    run = repetition(client, x, y)
    warm_up(run)
    if worst(x, y) > limit:
        raise RuntimeError(f"hetsched is wrong by {worst(x, y):.1e}")
    with Peers(peers, case, limit) as others:
        contestants = {"hetsched": lambda: run()[0], **{peer.name: peer.run for peer in others}}
        samples = interleave(contestants, rounds)
        kernels = {peer.name: peer.loaded for peer in others}
    return {**case, "variants": run()[1], "samples": samples, "loaded": kernels}


def repetition(
    client: hetsched.Client, x: Any, y: Any
) -> Callable[[], tuple[float, tuple[str, ...]]]:
    """Return a function () -> (seconds from submit to result, variants that ran)."""

    def run() -> tuple[float, tuple[str, ...]]:
        start = time.perf_counter()
        job = client.submit("fft", x, out=y)
        job.result()
        seconds = time.perf_counter() - start
        return seconds, tuple(sorted({device.variant for device in report(job).devices}))

    return run


def warm_up(run: Callable[[], tuple[float, tuple[str, ...]]]) -> None:
    """Run jobs until the daemon has tried its variants and keeps one."""
    seen: list[tuple[str, ...]] = []
    while len(seen) < LEAST_WARM_UP or len(set(seen[-SETTLED:])) > 1:
        seen.append(run()[1])
        if len(seen) == MOST_WARM_UP:
            break


def add(result: Result, found: dict[str, Any]) -> None:
    samples: dict[str, Sample] = found.pop("samples")
    ours = samples["hetsched"]
    peers = {name: sample for name, sample in samples.items() if name != "hetsched"}
    best = fastest(peers)
    ratios = {name: ratio(sample.seconds, ours.seconds) for name, sample in peers.items()}
    case = f"{'x'.join(map(str, found['shape']))} {found['dtype']}"
    row = (case, ours.text(), " ".join(found["variants"]), samples[best].text(), best)
    result.rows.append((*row, ratios[best].text(), ratios["scipy"].text()))
    found["seconds"] = {name: sample.seconds for name, sample in samples.items()}
    found["fastest"] = best
    found["ratio"] = {name: value.median for name, value in ratios.items()}
    result.data.append(found)
    print(f"  {' | '.join(result.rows[-1])}", flush=True)


def bars(data: list[dict[str, Any]]) -> list[Bar]:
    best = [found["ratio"][found["fastest"]] for found in data]
    found = [
        Bar("speed against the fastest peer, least of all cases", min(best), 0.97),
        Bar("speed against the fastest peer, median of all cases", statistics.median(best), 1.0),
    ]
    if machine.intel() and "dfti" in data[0]["ratio"]:
        packages = ("pyfftw", "mkl_fft", "ducc", "scipy")
        python = [min(item["ratio"][name] for name in packages) for item in data]
        scipy = [item["ratio"]["scipy"] for item in data]
        found.append(Bar("against the fastest Python package", statistics.median(python), 1.1))
        found.append(Bar("against SciPy", statistics.median(scipy), 2.2))
    return found
