"""A short job of the cores of one process: one command and one report for each of them."""

from __future__ import annotations

import msgspec

from hetsched.device import ChunkTimes, DeviceInfo
from hetsched.dispatch.commands import Finished, Send
from hetsched.engine.job.computation import Computation
from hetsched.memory import MemoryDemand
from hetsched.models import DeviceModel, PiecewiseLinear
from hetsched.planner.job_planner import Candidate, plan_job
from hetsched.transport.device_messages import OwnChunk, TailChunksDone

UNIT_SECONDS = 1e-3
LOAD = 300
CORES = ("cpu0", "cpu1")


def computation() -> Computation:
    curve = PiecewiseLinear([(100, 100 * UNIT_SECONDS)] * 5)
    info = DeviceInfo(name="", kind="cpu", identity="x", process="cpu")
    demand = MemoryDemand(input_bytes=1, work_bytes=0, output_bytes=1)
    candidates = [
        Candidate(
            msgspec.structs.replace(info, name=name),
            demand,
            {"v": DeviceModel(curve, curve)},
            {"v": 9},
        )
        for name in CORES
    ]
    plan = plan_job(LOAD, candidates)
    return Computation({each.device: each for each in plan.assignments}, {}, stealing=True)


def report(send: Send) -> TailChunksDone:
    times = ChunkTimes(compute=(0.0, 1.0))
    own = tuple(OwnChunk(chunk.id, times) for chunk in send.chunks)
    return TailChunksDone(1, CORES.index(send.device), (), own=own)


def test_each_core_gets_its_chunks_at_once_and_reports_once() -> None:
    job = computation()

    sends = [command for command in job.start(0.0) if isinstance(command, Send)]
    after_first = job.tail_chunks_done(CORES[0], report(sends[0]), 0.15)
    after_second = job.tail_chunks_done(CORES[1], report(sends[1]), 0.15)

    assert [send.device for send in sends] == list(CORES)
    assert sum(chunk.count for send in sends for chunk in send.chunks) == LOAD
    assert min(len(send.chunks) for send in sends) > 2
    assert (after_first, after_second) == ([], [Finished()])
    assert sum(progress.done for progress in job.progress()) == LOAD


def test_chunks_of_a_lost_core_that_were_not_reported_run_on_the_other() -> None:
    job = computation()
    sends = [command for command in job.start(0.0) if isinstance(command, Send)]
    done = report(sends[0])

    job.tail_chunks_done(CORES[0], msgspec.structs.replace(done, own=done.own[:1]), 0.1)
    job.tail_chunks_done(CORES[1], report(sends[1]), 0.15)
    again = job.device_lost(CORES[0], 0.2)

    lost = sum(chunk.count for chunk in sends[0].chunks[1:])
    assert sum(c.count for send in again if isinstance(send, Send) for c in send.chunks) == lost
