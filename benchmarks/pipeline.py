"""A share larger than the device's memory: the gain by overlap, and the error of the plan."""

from __future__ import annotations

import mmap
import os
import statistics
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.peers.fft_case import fill, worst
from benchmarks.results import Bar, Result
from benchmarks.serving import daemon, report
from benchmarks.split import facts
from hetsched.config import parse
from hetsched.device import Chunk, ChunkTimes, DeviceInfo
from hetsched.device_process.arrays import ArenaArray
from hetsched.device_process.prepared_job import Pipeline
from hetsched.devices.base import DeviceJob, DeviceOutOfMemory
from hetsched.devices.emulated.device import EmulatedGpu, open_device
from hetsched.plans.slots import SlotAllocator, slot_bytes
from hetsched.workload import find

SHAPE, QUICK_SHAPE = (256, 512, 512), (64, 512, 512)
CAP = 64 << 20
MACHINE = f"""
[[device]]
kind = "emulated"
name = "emu0"
core = 1
memory = "{CAP >> 20}MiB"
engines = 2
duplex = [0.9, 0.9]
compute = {{ gap = "30us", rate = "4Gflop/s" }}
h2d = {{ gap = "10us", rate = "0.4GB/s" }}
d2h = {{ gap = "10us", rate = "0.4GB/s" }}
"""
"""Rates that one core can sustain: it has 6 ms per plane, and needs half of that to copy and
compute. Copies in each direction take as long as computing, where overlap gains most."""
LEARNING, RUNS, QUICK_RUNS = 4, 5, 1
ERROR, FASTER = 0.10, 1.5


def measure(quick: bool) -> Result:
    columns = ("how", "chunks", "makespan, ms", "planned, ms", "relative error", "late")
    result = Result("pipeline", "A share larger than the device's memory", columns)
    runs, shape = QUICK_RUNS if quick else RUNS, QUICK_SHAPE if quick else SHAPE
    jobs = planned(shape, runs)
    with ThreadPoolExecutor(1) as thread:  # this process will be pinned to a core
        alone = [thread.submit(one_by_one, shape, job["chunks"]).result() for job in jobs]
        beyond = thread.submit(over_cap, shape).result()
    for how, found in (("overlapped, as planned", jobs), ("the same, one by one", alone)):
        result.data += [{"how": how, **one} for one in found]
        result.rows += [row(how, one) for one in found]
    error = statistics.median(abs(1 - job["predicted"] / job["seconds"]) for job in jobs)
    pairs = zip(alone, jobs, strict=True)
    faster = statistics.median(one["seconds"] / job["seconds"] for one, job in pairs)
    late = sum(one["late"] for one in (*jobs, *alone))
    result.bars = [
        Bar("makespan against the plan's, relative error", error, ERROR, at_least=False),
        Bar("times as fast as the same chunks one by one", faster, FASTER),
        Bar("phases that were late", late, 0, at_least=False),
        Bar("bytes beyond the cap that the device took", beyond, 0, at_least=False),
    ]
    return result


def row(how: str, one: dict[str, Any]) -> tuple[str, ...]:
    seconds, predicted = one["seconds"], one.get("predicted")
    shown = f"{predicted * 1e3:.4g}" if predicted else ""
    error = f"{abs(1 - predicted / seconds):.3f}" if predicted else ""
    return how, str(len(one["chunks"])), f"{seconds * 1e3:.4g}", shown, error, str(one["late"])


def planned(shape: tuple[int, ...], runs: int) -> list[dict[str, Any]]:
    """Run jobs through a daemon that has learnt the device's models from a few."""
    with tempfile.TemporaryDirectory(prefix="hs-") as folder:
        path = Path(folder) / "machine.toml"
        path.write_text(MACHINE, encoding="utf-8")
        with daemon(str(path)) as served:
            client = served.client
            x, y = client.empty(shape, "complex64"), client.empty(shape, "complex64")
            fill(x)
            reports = []
            for _ in range(LEARNING + runs):
                job = client.submit("fft", x, out=y)
                job.result()
                reports.append(report(job))
            assert worst(x, y) < 1e-5
    return [
        {
            "seconds": one.seconds,
            "predicted": one.predicted_seconds,
            "late": facts(one)["late"],
            "chunks": one.devices[0].chunks,
        }
        for one in reports[LEARNING:]
    ]


def one_by_one(shape: tuple[int, ...], sizes: Sequence[int]) -> dict[str, Any]:
    """Run the same chunks on the same device, each started when the previous one has ended."""
    device, job = opened(shape, max(sizes))
    device.prepare(job)
    times: list[ChunkTimes] = []
    layout = SlotAllocator(
        lambda units: slot_bytes(job.demand, units), job.memory, 1, True, max(sizes)
    )
    pipeline = Pipeline(device, layout, 1, lambda chunk, found: times.append(found))
    first = 0
    for number, count in enumerate(sizes):
        pipeline.add([Chunk(number, first, count, last=True)])
        first += count
    while pipeline.pending:
        pipeline.step()
    device.close()
    late = sum(one.late for one in times)
    return {"seconds": times[-1].end - times[0].start, "late": late, "chunks": tuple(sizes)}


def over_cap(shape: tuple[int, ...]) -> int:
    """Return the bytes that the device reserves beyond its cap, if requested."""
    device, job = opened(shape, 1, memory=CAP + 1)
    try:
        device.prepare(job)
    except DeviceOutOfMemory:
        return 0
    finally:
        device.close()
    return 1


def opened(
    shape: tuple[int, ...], chunk: int, memory: int | None = None
) -> tuple[EmulatedGpu, DeviceJob]:
    """Open the device in this process, with a job. Pins the calling thread to its core."""
    config = parse(MACHINE, "machine").device[0]
    core = sorted(os.sched_getaffinity(0))[-1]
    os.sched_setaffinity(0, {core})
    info = DeviceInfo(name="emu0", kind="emulated", identity="", link=True, memory=CAP, engines=2)
    device = open_device(info, config)
    assert isinstance(device, EmulatedGpu)
    fft = find("fft")
    params = fft.infer({}, {"x": (shape, "complex64")})
    hosts = {one.name: ArenaArray(one, _shared(shape)) for one in fft.arrays(params)}
    demand = fft.demand(params, "emulated")
    job = DeviceJob(
        workload=fft,
        params=params,
        variant=fft.variants("cpu")[0].name,
        inputs={"x": hosts["x"]},
        outputs={"y": hosts["y"]},
        chunk=chunk,
        demand=demand,
        memory=memory or slot_bytes(demand, chunk),
    )
    return device, job


def _shared(shape: tuple[int, ...]) -> np.ndarray:
    size = int(np.prod(shape)) * 8
    array = np.ndarray(shape, "complex64", mmap.mmap(-1, size))
    array[...] = 1
    return array
