"""The FFT of a batch through the pipeline, by slots and chunk size, compared with its bound.

T(c) = c/h + c/k + c/d + (V - c)/r + (V/c) o, with r = min(k, duplex pace): fill, drain, steady
pace and the fixed cost of a chunk. V: bytes each way, c: bytes of a chunk.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from hetsched_workloads.fft import Fft, FftParams

from benchmarks.gpu.common import MIB, Report, device_info, mapped, open_runtime
from benchmarks.gpu.copies import Link, Rates
from hetsched.device import Chunk, ChunkTimes
from hetsched.device_process.arrays import ArenaArray
from hetsched.device_process.prepared_job import Pipeline
from hetsched.devices.accelerator.device import Accelerator
from hetsched.devices.base import DeviceJob
from hetsched.plans.slots import SlotAllocator, slot_bytes

GAP = 15e-6
"""Assumed fixed cost of a chunk, seconds; the measured runs show how accurate it is."""
REPEAT = 5


@dataclass
class Load:
    """A batch of planes on the host, and its result."""

    params: FftParams
    x: np.ndarray
    y: np.ndarray

    @classmethod
    def make(cls, batch: str) -> Load:
        params = FftParams(batch=batch)
        count = Fft().load(params)
        shape = (count, *params.shape)
        x = mapped(count * params.plane_bytes).view("complex64").reshape(shape)
        y = mapped(count * params.plane_bytes).view("complex64").reshape(shape)
        plane = np.random.default_rng(0).standard_normal((*params.shape, 2), np.float32)
        for index in range(count):
            x[index] = plane.view("complex64")[..., 0] * np.float32(1 + index)
        return cls(params, x, y)

    def job(self, variant: str, chunk: int, slots: int, kind: str) -> DeviceJob:
        specs = {spec.name: spec for spec in Fft().arrays(self.params)}
        demand = Fft().demand(self.params, kind)
        return DeviceJob(
            workload=Fft(),
            params=self.params,
            variant=variant,
            inputs={"x": ArenaArray(specs["x"], self.x)},
            outputs={"y": ArenaArray(specs["y"], self.y)},
            chunk=chunk,
            demand=demand,
            memory=slots * slot_bytes(demand, chunk),
            slots=slots,
            cache="/tmp",
        )

    def error(self) -> float:
        """Return the error of the first and last plane, relative to the largest value."""
        worst = 0.0
        for index in (0, len(self.x) - 1):
            exact = np.fft.fft2(self.x[index].astype("complex128"))
            worst = max(worst, float(abs(self.y[index] - exact).max() / abs(exact).max()))
        return worst


class Times:
    """Collects the phases of one run."""

    def __init__(self) -> None:
        self.chunks: list[ChunkTimes] = []

    def add(self, chunk: Chunk, times: ChunkTimes) -> None:
        self.chunks.append(times)


def passes(
    device: Accelerator, load: Load, variant: str, chunk: int, slots: int, kind: str
) -> Iterator[tuple[float, list[ChunkTimes]]]:
    """Yield the wall seconds and phases of successive runs."""
    job = load.job(variant, chunk, slots, kind)
    count = Fft().load(load.params)
    while True:
        device.prepare(job)
        times = Times()
        layout = SlotAllocator(
            lambda units: slot_bytes(job.demand, units), job.memory, slots, True, chunk
        )
        pipeline = Pipeline(device, layout, slots + 1, times.add)
        firsts = range(0, count, chunk)
        start = time.monotonic()
        pipeline.add(
            Chunk(number, first, min(chunk, count - first), last=number == len(firsts) - 1)
            for number, first in enumerate(firsts)
        )
        while pipeline.pending:
            pipeline.step()
        yield time.monotonic() - start, times.chunks


def bound(volume: float, chunk: float, rates: Rates, compute: float) -> float:
    """Return T(c) in seconds; `volume` and `chunk` in bytes each way, `compute` in bytes/s."""
    slow, fast = sorted((rates.h2d_duplex, rates.d2h_duplex))
    one_way = rates.h2d if rates.h2d_duplex <= rates.d2h_duplex else rates.d2h
    pace = min(compute, 1 / (1 / fast + (1 - slow / fast) / one_way))
    once = chunk / rates.h2d + chunk / compute + chunk / rates.d2h
    return once + (volume - chunk) / pace + volume / chunk * GAP


def measure(report: Report) -> None:
    runtime = open_runtime(report.dry)
    kind = runtime.kernels
    variant = "cufft" if kind == "cuda" else "scipy"
    size = MIB if report.dry else 32 * MIB
    link = Link(runtime, size)
    link.pin()
    rates = link.rates(size // 2)
    link.unpin()
    del link
    report.put(rates=vars(rates))
    device = Accelerator(device_info(report.dry), runtime)
    batches = ["16x64x64"] if report.dry else ["256x512x512", "1024x512x512"]
    for batch in batches:
        load = Load.make(batch)
        for slots in (1, 2, 3, 4):
            for chunk in (2, 4) if report.dry else (2, 4, 8, 16, 32, 64):
                case = measure_ring(device, load, variant, chunk, slots, kind, rates)
                report.row("runs", batch=batch, slots=slots, chunk=chunk, **case)


def measure_ring(
    device: Accelerator,
    load: Load,
    variant: str,
    chunk: int,
    slots: int,
    kind: str,
    rates: Rates,
) -> dict[str, Any]:
    load.y[...] = np.nan
    runs = passes(device, load, variant, chunk, slots, kind)
    next(runs)
    samples = [next(runs) for _ in range(REPEAT)]
    walls = [wall for wall, _ in samples]
    phases = [times for _, run in samples for times in run[1:]] or samples[0][1]
    compute = statistics.median(t.compute[1] - t.compute[0] for t in phases)
    nbytes = load.params.plane_bytes
    bound_seconds = bound(
        load.x.nbytes, chunk * nbytes, rates, chunk * nbytes / max(compute, 1e-9)
    )
    wall = statistics.median(walls)
    return {
        "seconds": wall,
        "least_seconds": min(walls),
        "bound_seconds": bound_seconds,
        "of_bound": bound_seconds / wall,
        "compute_seconds_a_chunk": compute,
        "copy_in_seconds_a_chunk": statistics.median(length(t.copy_in) for t in phases),
        "copy_out_seconds_a_chunk": statistics.median(length(t.copy_out) for t in phases),
        "span_seconds": statistics.median(
            max(t.end for t in times) - min(t.start for t in times) for _, times in samples
        ),
        "error": load.error(),
    }


def length(span: tuple[float, float] | None) -> float:
    return 0.0 if span is None else span[1] - span[0]
