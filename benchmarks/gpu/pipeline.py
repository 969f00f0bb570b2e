"""Copies beside kernels: of an FFT's chunks, and of rows of which not all fit.

`pipeline`: the FFT of a batch by slots and chunk size, against its bound
T(c) = c/h + c/k + c/d + (V - c)/r + (V/c) o, with r = min(k, duplex pace): fill, drain, steady
pace and the fixed cost of a chunk. V: bytes each way, c: bytes of a chunk.
"""

from __future__ import annotations

import statistics
import sys
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from hetsched_workloads.fft import Fft, FftParams
from hetsched_workloads.heat import Heat

from benchmarks.gpu.common import MIB, Report, device_info, mapped, open_runtime
from benchmarks.gpu_check import ROOT
from hetsched.device import DeviceInfo
from hetsched.devices.accelerator.device import Accelerator
from hetsched.devices.accelerator.rows import piece_overhead
from hetsched.devices.accelerator.runtime import Copy, Runtime
from hetsched.devices.base import DeviceJob
from hetsched.testing.devices import cut, drive
from hetsched.testing.toys import ToyJob

sys.path.insert(0, str(ROOT / "tests"))

from iterating_bench import IteratingBench

GAP = 15e-6
"""Assumed fixed cost of a chunk, seconds; the measured runs show how accurate it is."""
REPEAT = 5
STEPS = 12
"""Of heat."""


@dataclass(frozen=True)
class Rates:
    """Bytes per second of the link, one way and with the other direction busy."""

    h2d: float
    d2h: float
    h2d_duplex: float
    d2h_duplex: float


def pipeline(report: Report) -> None:
    runtime = open_runtime(report.dry)
    variant = "cufft" if runtime.kernels == "cuda" else "scipy"
    rates = measure_rates(runtime, MIB if report.dry else 16 * MIB)
    report.put(rates=vars(rates))
    device = Accelerator(device_info(report.dry), runtime)
    params = FftParams(batch="16x64x64" if report.dry else "256x512x512")
    job = ToyJob(Fft(), params)
    wrong = 0
    for slots in (1, 2, 3, 4):
        for chunk in (2, 4) if report.dry else (2, 4, 8, 16, 32, 64):
            described = job.described(runtime.kernels, chunk, slots, variant=variant)
            row = run_chunks(device, job, described, rates)
            report.row("runs", slots=slots, chunk=chunk, **row)
            wrong += not row["error"] < 1e-5
    if wrong:
        raise RuntimeError(f"{wrong} runs gave wrong results")


def run_chunks(
    device: Accelerator, job: ToyJob, described: DeviceJob, rates: Rates
) -> dict[str, Any]:
    chunk = described.chunk
    whole, rest = divmod(job.load, chunk)
    chunks = cut([chunk] * whole + [rest] * (rest > 0))
    walls, spans, kernels = [], [], []
    for _ in range(1 + REPEAT):
        start = time.monotonic()
        times = drive(device, described, chunks)
        walls.append(time.monotonic() - start)
        spans.append(max(t.end for t in times.values()) - min(t.start for t in times.values()))
        kernels += [t.compute[1] - t.compute[0] for t in times.values()]
    plane = job.params.plane_bytes
    pace = chunk * plane / max(statistics.median(kernels), 1e-9)
    limit = bound(job.load * plane, chunk * plane, rates, pace)
    seconds = statistics.median(spans[1:])
    exact = np.fft.fft2(job.values["x"][-1].astype("complex128"))
    error = abs(job.result()[-1] - exact).max() / abs(exact).max()
    return {
        "seconds": seconds,
        "whole_seconds": statistics.median(walls[1:]),
        "bound_seconds": limit,
        "of_bound": limit / seconds,
        "compute_seconds_a_chunk": statistics.median(kernels),
        "error": float(error),
    }


def bound(volume: float, chunk: float, rates: Rates, compute: float) -> float:
    """Return T(c) in seconds; `volume` and `chunk` in bytes each way, `compute` in bytes/s."""
    slow, fast = sorted((rates.h2d_duplex, rates.d2h_duplex))
    one_way = rates.h2d if rates.h2d_duplex <= rates.d2h_duplex else rates.d2h
    pace = min(compute, 1 / (1 / fast + (1 - slow / fast) / one_way))
    once = chunk / rates.h2d + chunk / compute + chunk / rates.d2h
    return once + (volume - chunk) / pace + volume / chunk * GAP


def measure_rates(runtime: Runtime, nbytes: int) -> Rates:
    """Return the rates of copies of `nbytes` from and to pinned memory."""
    hosts, block = (mapped(nbytes), mapped(nbytes)), runtime.allocate(2 * nbytes)
    queues = runtime.queue(), runtime.queue()
    for host in hosts:
        runtime.pin(host)

    def rate(*directions: int) -> list[float]:
        samples = []
        for _ in range(REPEAT):
            events = {index: (runtime.event(), runtime.event()) for index in directions}
            for index, (start, end) in events.items():
                queues[index].record(start)
                copy = queues[index].copy_out if index else queues[index].copy_in
                for _ in range(4):
                    copy([Copy(block, index * nbytes, hosts[index])], 1)
                queues[index].record(end)
            for _, end in events.values():
                end.wait()
            seconds = [max(end.seconds_after(start), 1e-9) for start, end in events.values()]
            samples.append([4 * nbytes / each for each in seconds])
        return [statistics.median(rates) for rates in zip(*samples, strict=True)]

    rates = Rates(*rate(0), *rate(1), *rate(0, 1))
    for host in hosts:
        runtime.unpin(host)
    return rates


class SmallMemory(Accelerator):
    """A GPU of which a job may use `limit` bytes."""

    limit = 0

    def usable_memory(self) -> int:
        return self.limit


def streamed(report: Report) -> None:
    """Heat on a GPU that holds a part of the rows."""
    runtime, info = open_runtime(report.dry), device_info(report.dry)
    workload = Heat()
    grid = "96x64" if report.dry else "8192x16384"
    params = workload.infer({"grid": grid, "steps": STEPS}, {})
    rows, columns = params.shape
    x = np.random.default_rng(1).standard_normal((rows, columns), "float32")
    row_bytes = 4 * columns
    rates = measure_rates(runtime, min(rows * row_bytes, 64 << 20))
    report.put(grid=grid, h2d_rate=rates.h2d, d2h_rate=rates.d2h)
    demand, overhead = workload.demand(params, "cuda"), piece_overhead(workload, params)
    results = {}
    for fits in (1.0, 0.8, 0.4, 0.1):
        SmallMemory.limit = demand.need([int(fits * rows)]) + 4 * overhead
        seconds, kernels, results[fits] = run_heat(runtime, info, params, x)
        nbytes = (1 - fits) * rows * row_bytes
        copies = (nbytes / rates.h2d, nbytes / rates.d2h)
        serial, bound = kernels + sum(copies), max(kernels, *copies)
        report.row(
            "cases",
            fits=fits,
            seconds_per_iteration=seconds,
            kernels=kernels,
            serial=serial,
            bound=bound,
            overlapped=(serial - seconds) / (serial - bound) if fits < 1 else None,
            is_equal=bool(np.array_equal(results[fits], results[1.0])),
        )
    if not all(np.array_equal(values, results[1.0]) for values in results.values()):
        raise RuntimeError("streamed rows have other results than rows that fit")


def run_heat(
    runtime: Runtime, info: DeviceInfo, params: Any, x: np.ndarray
) -> tuple[float, float, np.ndarray]:
    """Return the seconds of an iteration and of its kernels, and the result."""
    device = SmallMemory(info, runtime)
    bench = IteratingBench(
        params,
        {"initial": x},
        [(info, lambda described: device)],
        workload="hetsched_workloads.heat:Heat",
        arena=8 << 30,
        saves=True,
    )
    bench.prepare(variant="numpy" if runtime.kernels == "cpu" else "cupy")
    bench.iterate({0: len(x)})
    bench.stopped(1)
    phases = [record.seconds for record in bench.records(0)][STEPS // 2 :]
    result = bench.arrays["final"].copy()
    bench.close()
    device.close()  # unpins memory before it is mapped again
    seconds = float(np.median([phase.compute + phase.transfer for phase in phases]))
    return seconds, float(np.median([phase.compute for phase in phases])), result
