"""Cores of one process take the tail of a job from a shared counter."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from queue import Queue
from typing import Any

import msgspec
import numpy as np
import pytest
from device_bench import cut
from device_toys import AffineParams

from hetsched.device import Chunk, ChunkTimes, DeviceInfo, TailPart
from hetsched.device_process import shared_tails
from hetsched.device_process.attachments import Attachments
from hetsched.device_process.device_thread import DeviceThread
from hetsched.device_process.shared_tails import (
    MAX_REPORT_SECONDS,
    DeviceTail,
    LockedCounter,
    SharedTails,
)
from hetsched.devices.cpu.device import CpuDevice
from hetsched.transport.arena import Arena
from hetsched.transport.device_messages import (
    Attach,
    ChunkDone,
    CommandFailed,
    DeviceNote,
    Fence,
    Fenced,
    Prepare,
    Run,
    StoredArray,
    TailChunksDone,
)

UNITS, OWN = 96, 16
PATIENCE = 60.0
JOB = 1
TAIL = TailPart(first=2 * OWN, units=UNITS - 2 * OWN, weight=0.5, least=3, most=12)


class Cores:
    """Two cores of a process, which share the tail of a job behind their own 16 units each."""

    def __init__(self) -> None:
        self.arena = Arena(1 << 20)
        self.events: Queue[Any] = Queue()
        attachments, tails = Attachments(), SharedTails()
        self.segments = [self.arena.allocate(UNITS * 32) for _ in range(2)]
        for key, segment in enumerate(self.segments, start=1):
            segment.array((UNITS, 4), "float64")[...] = float(key)
            attachments.attach(Attach(key, "segment", segment.nbytes), os.dup(segment.fd))
        self.threads = [
            DeviceThread(
                index,
                DeviceInfo(name=f"cpu{index}", kind="cpu", identity="test"),
                CpuDevice,
                attachments,
                self.events.put,
                lambda *result: None,
                tails,
            )
            for index in range(2)
        ]

    def order(self, index: int, *commands: Any) -> None:
        for command in commands:
            self.threads[index].commands.put(command)

    def start(self) -> None:
        for thread in self.threads:
            thread.start()

    def events_until_left(self, count: int) -> list[Any]:
        """The next events, without notes, until `count` devices have left the tail."""
        events: list[Any] = []
        while sum(getattr(event, "has_left", False) for event in events) < count:
            events += self.events_until(TailChunksDone, 1)
        return events

    def events_until(self, kind: type, count: int) -> list[Any]:
        """The next events, without notes, until `count` are of this kind."""
        events: list[Any] = []
        while sum(isinstance(event, kind) for event in events) < count:
            event = self.events.get(timeout=PATIENCE)
            events += [] if isinstance(event, DeviceNote) else [event]
        return events

    def result(self) -> np.ndarray:
        return self.segments[1].array((UNITS, 4), "float64")

    def close(self) -> None:
        for index, thread in enumerate(self.threads):
            self.order(index, None)
            thread.join()
        self.arena.close()


@pytest.fixture
def cores(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> Iterator[Cores]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with contextlib.closing(Cores()) as both:
        yield both


def prepare(index: int, variant: str = "numpy") -> Prepare:
    return Prepare(
        job=JOB,
        device=index,
        workload="device_toys:Affine",
        params=msgspec.json.encode(AffineParams(UNITS)),
        variant=variant,
        arrays=tuple(
            StoredArray(array=name, key=key, shape=(UNITS, 4), dtype="<f8", output=key == 2)
            for key, name in enumerate("xy", start=1)
        ),
        chunk=OWN,
        answer=False,
        tail=TAIL,
    )


def run(index: int, *, opens_tail: bool = True) -> Run:
    return Run(JOB, index, (Chunk(index, OWN * index, OWN),), opens_tail)


def test_two_cores_compute_every_unit_of_the_tail_once(cores: Cores) -> None:
    for index in range(2):
        cores.order(index, prepare(index), run(index))
    cores.start()

    events = cores.events_until_left(2)

    reports = [event for event in events if isinstance(event, TailChunksDone)]
    taken = sorted((chunk.first, chunk.count) for report in reports for chunk in report.chunks)
    assert [unit for first, count in taken for unit in range(first, first + count)] == list(
        range(TAIL.first, UNITS)
    )
    assert sorted(chunk.chunk for report in reports for chunk in report.own) == [0, 1]
    assert not any(isinstance(event, ChunkDone) for event in events)
    assert all(chunk.times.taken for report in reports for chunk in report.chunks)
    np.testing.assert_array_equal(cores.result(), 3.0)


def test_a_core_takes_nothing_before_the_tail_is_open(cores: Cores) -> None:
    cores.order(0, prepare(0), run(0, opens_tail=False))
    cores.order(1, prepare(1), run(1))
    cores.start()

    events = cores.events_until_left(1)

    assert {e.device for e in events if isinstance(e, TailChunksDone)} == {1}
    np.testing.assert_array_equal(cores.result()[TAIL.first :], 3.0)


def test_a_fence_ends_the_taking(cores: Cores) -> None:
    cores.order(0, prepare(0), run(0), Fence(JOB, 0))
    cores.start()

    events = cores.events_until(Fenced, 1)

    assert isinstance(events[-1], Fenced)
    assert not any(event.chunks for event in events if isinstance(event, TailChunksDone))


def test_a_chunk_of_the_tail_that_fails_is_reported(cores: Cores) -> None:
    cores.order(0, prepare(0, "broken"), Run(JOB, 0, (), True))
    cores.start()

    events = cores.events_until(CommandFailed, 1)

    assert (events[-1].device, events[-1].cause) == (0, "kernel")


def test_chunks_sent_later_go_before_those_of_the_tail(cores: Cores) -> None:
    extra = Run(JOB, 0, tuple(cut([OWN])))
    cores.order(0, prepare(0), Run(JOB, 0, (), True), extra)
    cores.start()

    first, *_ = cores.events_until_left(1)

    assert isinstance(first, TailChunksDone)
    assert len(first.own) == 1


def test_a_core_keeps_no_report_for_a_tail_that_is_not_open(cores: Cores) -> None:
    gathering = msgspec.structs.replace(prepare(0), gathers=True)
    cores.order(0, gathering, Run(JOB, 0, tuple(cut([OWN // 2] * 2))))
    cores.start()

    events = cores.events_until(ChunkDone, 2)

    assert not any(isinstance(event, TailChunksDone) for event in events)


def test_short_chunks_are_reported_together(cores: Cores, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_tails, "MAX_REPORT_SECONDS", PATIENCE)
    cores.order(0, prepare(0), run(0))
    cores.start()

    events = cores.events_until_left(1)

    reports = [event for event in events if isinstance(event, TailChunksDone)]
    assert sum(len(report.chunks) for report in reports) > len(reports)
    assert [report.has_left for report in reports] == [False] * (len(reports) - 1) + [True]


def test_a_chunk_that_was_sent_waits_for_the_next_report_but_not_for_long() -> None:
    reports: list[tuple[list[int], int]] = []
    tail = DeviceTail(
        LockedCounter(TAIL),
        TAIL,
        lambda own, taken, _: reports.append(([chunk.chunk for chunk in own], len(taken))),
    )
    half, whole = MAX_REPORT_SECONDS / 2, MAX_REPORT_SECONDS
    tail.finish_own(Chunk(7, 0, 1), ChunkTimes(compute=(0.0, half)))
    assert reports == []
    tail.finish(Chunk(-1, TAIL.first, 3), ChunkTimes(compute=(half, whole)))
    assert reports == [([7], 1)]
    tail.finish_own(Chunk(8, 1, 1), ChunkTimes(compute=(whole, 2 * whole)))
    assert reports[1:] == [([8], 0)]
