"""C + A B through the daemon, compared with NumPy's `C += A @ B` with all threads."""

from __future__ import annotations

import os
import time
from typing import Any

import numpy as np

import hetsched
from benchmarks.children import Peers
from benchmarks.paired import interleave
from benchmarks.peers.numpy_matmul_peer import operands
from benchmarks.results import Bar, Result
from benchmarks.serving import daemon, report
from benchmarks.stats import ratio

SHAPES = {(4096, 4096, 512): 15, (2048, 8192, 8192): 5}
"""Shape -> rounds. In the second, packing B costs as much as 40 rows, in each call."""
QUICK_SHAPES = {(512, 512, 128): 3}
WARM_UP = 12
MIN_SPEED = 0.97
LIMITS = {"float32": 1e-4, "float64": 1e-12}


def measure(quick: bool) -> Result:
    columns = ("case", "hetsched, ms", "variant", "NumPy, ms", "speed against it")
    result = Result("matrix_update", "Matrix update", columns)
    with daemon() as served:
        for shape, rounds in (QUICK_SHAPES if quick else SHAPES).items():
            for dtype, limit in LIMITS.items():
                case = {"shape": shape, "dtype": dtype, "threads": len(os.sched_getaffinity(0))}
                one_case(result, served.client, case, limit, rounds)
    values = [found["ratio"] for found in result.data]
    result.bars = [Bar("speed against NumPy, least of all", min(values), MIN_SPEED)]
    return result


def one_case(
    result: Result, client: hetsched.Client, case: dict[str, Any], limit: float, rounds: int
) -> None:
    values = dict(zip("CAB", operands(case), strict=True))
    inputs = {name: client.empty(value.shape, value.dtype.name) for name, value in values.items()}
    for name, value in values.items():
        inputs[name][...] = value
    out = client.empty(values["C"].shape, case["dtype"])

    def run() -> float:
        start = time.perf_counter()
        client.submit("matrix_update", inputs, out=out).result()
        return time.perf_counter() - start

    for _ in range(WARM_UP):
        run()
    check(values, out, limit)
    with Peers(("numpy_matmul_peer",), case, limit) as (peer,):
        samples = interleave({"hetsched": run, "numpy": peer.run}, rounds)
        loaded = peer.loaded
    job = client.submit("matrix_update", inputs, out=out)
    job.result()
    variants = sorted({device.variant for device in report(job).devices})
    ours, theirs = samples["hetsched"], samples["numpy"]
    speed = ratio(theirs.seconds, ours.seconds)
    name = f"{'x'.join(map(str, case['shape']))} {case['dtype']}"
    row = (name, ours.text(), " ".join(variants), theirs.text(), speed.text())
    result.rows.append(row)
    seconds = {key: sample.seconds for key, sample in samples.items()}
    result.data.append({**case, "seconds": seconds, "ratio": speed.median, "loaded": loaded})
    print(f"  {' | '.join(row)}", flush=True)


def check(values: dict[str, np.ndarray], out: np.ndarray, limit: float) -> None:
    """Check two rows in double precision. Raises RuntimeError."""
    for row in (0, -1):
        c, a, b = (values[name].astype("float64") for name in "CAB")
        want = c[row] + a[row] @ b
        error = np.abs(out[row] - want).max() / np.abs(want).max()
        if error > limit:
            raise RuntimeError(f"row {row} is wrong by {error:.1e}")
