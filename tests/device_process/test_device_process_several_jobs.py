"""A core that holds several jobs at once: whose chunks go first, and faults of one of them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from queue import Queue
from typing import Any

import msgspec
import numpy as np
import pytest
from device_bench import VIRTUAL, cut, info_of
from device_toys import AffineParams

from hetsched.device import Chunk, DeviceInfo, TailPart
from hetsched.device_process import command_handler
from hetsched.device_process.attachments import Attachments
from hetsched.device_process.device_thread import DeviceThread
from hetsched.devices.base import Device
from hetsched.devices.cpu.device import CpuDevice
from hetsched.devices.emulated.device import open_device
from hetsched.transport.arena import Arena, Segment
from hetsched.transport.device_messages import (
    Attach,
    Check,
    Checked,
    ChunkDone,
    CommandFailed,
    Detach,
    DeviceNote,
    Fence,
    Fenced,
    Fill,
    Filled,
    Prepare,
    Prepared,
    Release,
    Run,
    StoredArray,
    TailChunksDone,
    VariantFailed,
)

UNITS = 24
PATIENCE = 60.0
MAIN, SIDE = 1, 2


def core(info: DeviceInfo) -> Device:
    return CpuDevice(info)


class Bench:
    """A core; the main job's arrays are segments 1 and 2, the side job's 3 and 4."""

    def __init__(self, info: DeviceInfo, open_it: Any = core) -> None:
        self.arena = Arena(1 << 20)
        self.events: Queue[Any] = Queue()
        self.attachments = Attachments()
        self.segments: dict[int, Segment] = {}
        for key in (1, 2, 3, 4):
            segment = self.segments[key] = self.arena.allocate(UNITS * 32)
            segment.array((UNITS, 4), "float64")[...] = 0.0 if key % 2 == 0 else float(key)
            self.attachments.attach(Attach(key, "segment", segment.nbytes), os.dup(segment.fd))
        self.thread = DeviceThread(
            0, info, open_it, self.attachments, self.events.put, lambda *result: None
        )

    def order(self, *commands: Any) -> None:
        for command in commands:
            self.thread.commands.put(command)

    def next_events(self, count: int) -> list[Any]:
        """The next events, notes apart."""
        events: list[Any] = []
        while len(events) < count:
            event = self.events.get(timeout=PATIENCE)
            events += [] if isinstance(event, DeviceNote) else [event]
        return events

    def events_of(self, *expected: tuple[int, type]) -> list[Any]:
        """The next events, notes apart: of these jobs and kinds."""
        events = self.next_events(len(expected))
        assert [(event.job, type(event)) for event in events] == list(expected)
        return events

    def result(self, key: int) -> np.ndarray:
        return self.segments[key].array((UNITS, 4), "float64")

    def close(self) -> None:
        self.order(None)
        self.thread.join()
        self.arena.close()


def prepare(job: int, **changes: Any) -> Prepare:
    dtype = changes.pop("stored_dtype", "<f8")
    settings: dict[str, Any] = {"chunk": UNITS, "variant": "numpy", "side": job == SIDE, **changes}
    first_key = 2 * job - 1
    return Prepare(
        job=job,
        device=0,
        workload="device_toys:Affine",
        params=msgspec.json.encode(AffineParams(UNITS)),
        arrays=(
            StoredArray(array="x", key=first_key, shape=(UNITS, 4), dtype=dtype),
            StoredArray(array="y", key=first_key + 1, shape=(UNITS, 4), dtype="<f8", output=True),
        ),
        **settings,
    )


def run(job: int, *sizes: int) -> Run:
    return Run(job, 0, tuple(cut(list(sizes))))


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> Iterator[Bench]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    made = Bench(DeviceInfo(name="cpu0", kind="cpu", identity="test"))
    with contextlib.closing(made):
        yield made


def test_chunks_of_a_side_job_go_before_those_already_waiting(bench: Bench) -> None:
    bench.order(prepare(MAIN, answer=False), run(MAIN, 12, 12))
    bench.order(prepare(SIDE, answer=False), run(SIDE, 12, 12))

    bench.thread.start()

    done = [(SIDE, ChunkDone)] * 2 + [(MAIN, ChunkDone)] * 2
    bench.events_of(*done)
    np.testing.assert_array_equal(bench.result(2), 3.0)
    np.testing.assert_array_equal(bench.result(4), 7.0)


def test_a_tail_is_computed_for_its_own_job_after_a_side_job(bench: Bench) -> None:
    tail = TailPart(first=12, units=12, weight=1.0, least=4, most=4)
    bench.order(prepare(MAIN, answer=False, tail=tail))
    bench.order(prepare(SIDE, answer=False), run(SIDE, 24))
    bench.order(Run(MAIN, 0, tuple(cut([12])), opens_tail=True))
    bench.thread.start()
    bench.events_of((SIDE, ChunkDone), (MAIN, ChunkDone))
    bench.order(Run(SIDE, 0, tuple(cut([24]))))  # between chunks of the tail, or after it

    done: list[Any] = []
    while not any(getattr(event, "has_left", False) for event in done):
        done += bench.next_events(1)

    assert not any(isinstance(event, CommandFailed) for event in done)
    np.testing.assert_array_equal(bench.result(2), 3.0)
    np.testing.assert_array_equal(bench.result(4), 7.0)


def test_a_tail_that_opens_late_is_computed_for_its_own_job(bench: Bench) -> None:
    """The device is prepared for the side job when the main job's tail opens."""
    tail = TailPart(first=0, units=24, weight=1.0, least=24, most=24)
    bench.order(prepare(MAIN, answer=False, tail=tail))
    bench.order(prepare(SIDE, answer=False), run(SIDE, 24))
    bench.thread.start()
    bench.events_of((SIDE, ChunkDone))

    bench.order(Run(MAIN, 0, (), opens_tail=True))

    (left,) = bench.events_of((MAIN, TailChunksDone))
    assert left.has_left
    np.testing.assert_array_equal(bench.result(2), 3.0)


def test_jobs_that_pass_through_the_same_slots_do_not_mix(bench: Bench) -> None:
    """Converted inputs need slots, which the jobs of a core use in turn."""
    for key in (1, 3):
        bench.segments[key].array((UNITS, 4), "int64")[...] = key
    bench.order(prepare(MAIN, answer=False, stored_dtype="<i8"), run(MAIN, *[4] * 6))
    bench.thread.start()
    bench.order(prepare(SIDE, answer=False, stored_dtype="<i8"), run(SIDE, *[4] * 6))

    bench.next_events(12)

    np.testing.assert_array_equal(bench.result(2), 3.0)
    np.testing.assert_array_equal(bench.result(4), 7.0)


def test_a_side_job_that_raises_leaves_the_main_one_alone(bench: Bench) -> None:
    bench.order(prepare(MAIN, answer=False), run(MAIN, 12, 12))
    bench.order(prepare(SIDE, answer=False, variant="broken"), run(SIDE, 12))

    bench.thread.start()

    failed, *_ = bench.events_of((SIDE, CommandFailed), (MAIN, ChunkDone), (MAIN, ChunkDone))
    assert (failed.cause, failed.chunk) == ("kernel", 0)
    np.testing.assert_array_equal(bench.result(2), 3.0)


def test_a_fence_of_either_job_leaves_the_other_one_alone(bench: Bench) -> None:
    bench.order(prepare(MAIN, answer=False), run(MAIN, 12, 12))
    bench.order(prepare(SIDE, answer=False), run(SIDE, 12), Fence(MAIN, 0))

    bench.thread.start()

    bench.events_of((MAIN, Fenced), (SIDE, ChunkDone))
    bench.order(prepare(MAIN, answer=False), run(MAIN, 12, 12), Fence(SIDE, 0))
    events = {(type(event), event.job) for event in bench.next_events(3)}
    assert events == {(Fenced, SIDE), (ChunkDone, MAIN)}


def test_a_detached_segment_stays_valid_for_a_job_that_uses_it(bench: Bench) -> None:
    bench.order(prepare(MAIN), prepare(SIDE))
    bench.thread.start()
    bench.events_of((MAIN, Prepared), (SIDE, Prepared))

    bench.attachments.detach(Detach((1, 2)).keys)
    bench.order(Release(SIDE, 0), run(MAIN, 24))

    bench.events_of((MAIN, ChunkDone))
    np.testing.assert_array_equal(bench.result(2), 3.0)


def test_a_side_job_is_filled_computed_and_checked_between_chunks(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command_handler, "MAX_PAUSE_SECONDS", PATIENCE)
    bench.order(prepare(MAIN, answer=False), run(MAIN, 24), prepare(SIDE))
    bench.thread.start()
    bench.events_of((SIDE, Prepared))  # it waits for the side job's next command

    bench.order(Fill(SIDE, 0, "x", 0, UNITS, seed=3))
    bench.events_of((SIDE, Filled))
    bench.order(run(SIDE, 24), Check(SIDE, 0, 0, UNITS, (0,), 5))

    _, checked, _ = bench.events_of((SIDE, ChunkDone), (SIDE, Checked), (MAIN, ChunkDone))
    assert checked.worst < 1 and checked.max_error < 1e-12


def test_a_failing_fill_fails_its_job_only(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.order(prepare(MAIN, answer=False), prepare(SIDE, answer=False))
    bench.order(Fill(SIDE, 0, "no array", 0, UNITS, seed=3), run(MAIN, 24))

    bench.thread.start()

    bench.events_of((SIDE, CommandFailed), (MAIN, ChunkDone))


def test_a_device_with_a_link_holds_the_latest_job_only(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    linked = Bench(info_of(VIRTUAL), lambda info: open_device(info, VIRTUAL))
    with contextlib.closing(linked):
        linked.order(
            prepare(MAIN, memory=512, chunk=4), prepare(SIDE, memory=512, chunk=4), run(MAIN, 4)
        )
        linked.order(Run(SIDE, 0, tuple(cut([4])[:1])))

        linked.thread.start()

        linked.events_of((MAIN, Prepared), (SIDE, Prepared), (SIDE, ChunkDone))


def test_a_rival_that_fails_is_reported_and_its_chunk_is_computed(bench: Bench) -> None:
    chunks = (Chunk(0, 0, 12), Chunk(1, 12, 12, last=True, kernel=1))

    bench.order(prepare(MAIN, rivals=("broken",)), Run(MAIN, 0, chunks))
    bench.thread.start()

    *_, rejected, done = bench.events_of(
        (MAIN, Prepared), (MAIN, ChunkDone), (MAIN, VariantFailed), (MAIN, ChunkDone)
    )
    assert rejected.variant == "broken"
    assert "no such luck" in rejected.error.message
    assert done.times.kernel == 0


def test_the_first_chunk_of_each_kernel_is_cold(bench: Bench) -> None:
    kernels = (0, 1, 1, 0)
    chunks = [Chunk(i, 6 * i, 6, last=i == 3, kernel=k) for i, k in enumerate(kernels)]

    bench.order(prepare(MAIN, rivals=("talkative",)), Run(MAIN, 0, tuple(chunks)))
    bench.thread.start()

    _, *done = bench.events_of((MAIN, Prepared), *[(MAIN, ChunkDone)] * 4)
    assert [event.times.cold for event in done] == [True, True, False, False]
