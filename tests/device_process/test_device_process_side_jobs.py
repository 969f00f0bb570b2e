"""A core that computes a main job and a side job at once, each in its thread."""

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
from gated_workload import Gate

from hetsched.config import DeviceConfig
from hetsched.config.cost import Cost
from hetsched.device import Chunk, DeviceInfo, TailPart
from hetsched.device_process.attachments import Attachments
from hetsched.device_process.device_threads import DeviceThreads
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
    VariantFailed,
)

UNITS = 24
PATIENCE = 60.0
MAIN, SIDE, NEXT_SIDE = 1, 2, 3
DONE = (Prepared, ChunkDone)


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
        opened: Queue[Any] = Queue()
        self.threads = DeviceThreads(
            0, info, open_it, self.attachments, self.events.put, lambda *result: opened.put(result)
        )
        self.threads.start()
        opened.get(timeout=PATIENCE)
        self.threads.start_side()

    def order(self, *commands: Any) -> None:
        for command in commands:
            self.threads.handle(command)

    def next_events(self, count: int) -> list[Any]:
        """The next events, notes apart."""
        events: list[Any] = []
        while len(events) < count:
            event = self.events.get(timeout=PATIENCE)
            events += [] if isinstance(event, DeviceNote) else [event]
        return events

    def events_of(self, *expected: tuple[int, type]) -> list[Any]:
        """The next events, notes apart: of these jobs and kinds, in this order for each job."""
        by_job = sorted(self.next_events(len(expected)), key=lambda event: event.job)
        expected_by_job = sorted(expected, key=lambda job_and_kind: job_and_kind[0])
        assert [(event.job, type(event)) for event in by_job] == expected_by_job
        return by_job

    def result(self, key: int) -> np.ndarray:
        return self.segments[key].array((UNITS, 4), "float64")

    def close(self) -> None:
        self.threads.stop()
        self.threads.join(PATIENCE)
        self.arena.close()


def prepare(job: int, **changes: Any) -> Prepare:
    dtype = changes.pop("stored_dtype", "<f8")
    array_job = changes.pop("arrays", job)
    settings: dict[str, Any] = {"chunk": UNITS, "variant": "numpy", "side": job == SIDE, **changes}
    settings.setdefault("workload", "device_toys:Affine")
    settings.setdefault("params", msgspec.json.encode(AffineParams(UNITS)))
    first_key = 2 * array_job - 1
    return Prepare(
        job=job,
        device=0,
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


def test_a_side_job_is_computed_while_a_chunk_of_the_main_job_hangs(
    bench: Bench, tmp_path: Any
) -> None:
    gate = Gate(tmp_path / "gate")
    gated = msgspec.json.encode({"units": UNITS, "gate": str(gate.path)})
    bench.order(prepare(MAIN, workload="gated_workload:Gated", params=gated), run(MAIN, UNITS))
    bench.events_of((MAIN, Prepared))

    bench.order(prepare(SIDE, answer=False), run(SIDE, 12, 12))

    bench.events_of((SIDE, ChunkDone), (SIDE, ChunkDone))
    np.testing.assert_array_equal(bench.result(4), 7.0)
    gate.close()
    bench.events_of((MAIN, ChunkDone))
    np.testing.assert_array_equal(bench.result(2), 3.0)


def test_a_tail_is_computed_for_its_own_job_beside_a_side_job(bench: Bench) -> None:
    tail = TailPart(first=12, units=12, weight=1.0, least=4, most=4)
    bench.order(prepare(MAIN, answer=False, tail=tail))
    bench.order(prepare(SIDE, answer=False), run(SIDE, 24))
    bench.order(Run(MAIN, 0, tuple(cut([12])), opens_tail=True))
    bench.order(Run(SIDE, 0, tuple(cut([24]))))

    done: list[Any] = []
    while not any(getattr(event, "has_left", False) for event in done):
        done += bench.next_events(1)

    assert not any(isinstance(event, CommandFailed) for event in done)
    np.testing.assert_array_equal(bench.result(2), 3.0)


def test_jobs_that_pass_through_slots_do_not_mix(bench: Bench) -> None:
    """Converted inputs need slots, of which each job has its own."""
    for key in (1, 3):
        bench.segments[key].array((UNITS, 4), "int64")[...] = key
    bench.order(prepare(MAIN, answer=False, stored_dtype="<i8"), run(MAIN, *[4] * 6))
    bench.order(prepare(SIDE, answer=False, stored_dtype="<i8"), run(SIDE, *[4] * 6))

    bench.next_events(12)

    np.testing.assert_array_equal(bench.result(2), 3.0)
    np.testing.assert_array_equal(bench.result(4), 7.0)


def test_a_side_job_that_raises_leaves_the_main_one_alone(bench: Bench) -> None:
    bench.order(prepare(SIDE, answer=False, variant="broken"), run(SIDE, 12))
    bench.order(prepare(MAIN, answer=False), run(MAIN, 12, 12))

    *_, failed = bench.events_of((SIDE, CommandFailed), (MAIN, ChunkDone), (MAIN, ChunkDone))

    assert (failed.cause, failed.chunk) == ("kernel", 0)
    np.testing.assert_array_equal(bench.result(2), 3.0)


@pytest.mark.parametrize("job", [MAIN, SIDE])
def test_a_fence_of_either_job_leaves_the_other_one_alone(bench: Bench, job: int) -> None:
    other = SIDE if job == MAIN else MAIN
    bench.order(prepare(MAIN), prepare(SIDE), Fence(job, 0), run(other, 12, 12))

    bench.events_of((MAIN, Prepared), (SIDE, Prepared), (job, Fenced), *[(other, ChunkDone)] * 2)


def test_after_its_fence_a_side_job_is_unknown(bench: Bench) -> None:
    bench.order(prepare(SIDE), Fence(SIDE, 0))
    bench.events_of((SIDE, Prepared), (SIDE, Fenced))

    bench.order(run(SIDE, 12), Fence(SIDE, 0))

    bench.events_of((SIDE, Fenced))


def test_a_side_job_replaces_the_previous_one_only(bench: Bench) -> None:
    bench.order(prepare(MAIN), prepare(SIDE), prepare(NEXT_SIDE, side=True, arrays=SIDE))
    bench.events_of((MAIN, Prepared), (SIDE, Prepared), (NEXT_SIDE, Prepared))

    bench.order(Release(SIDE, 0), run(SIDE, 24), run(MAIN, 24), run(NEXT_SIDE, 24))

    bench.events_of((MAIN, ChunkDone), (NEXT_SIDE, ChunkDone))
    np.testing.assert_array_equal(bench.result(4), 7.0)


def test_a_detached_segment_stays_valid_for_a_job_that_uses_it(bench: Bench) -> None:
    bench.order(prepare(MAIN), prepare(SIDE))
    bench.events_of((MAIN, Prepared), (SIDE, Prepared))

    bench.attachments.detach(Detach((1, 2)).keys)
    bench.order(Release(SIDE, 0), run(MAIN, 24))

    bench.events_of((MAIN, ChunkDone))
    np.testing.assert_array_equal(bench.result(2), 3.0)


def test_a_side_job_is_filled_computed_and_checked(bench: Bench) -> None:
    bench.order(prepare(SIDE), Fill(SIDE, 0, "x", 0, UNITS, seed=3))
    bench.events_of((SIDE, Prepared), (SIDE, Filled))
    bench.order(run(SIDE, 24), Check(SIDE, 0, 0, UNITS, (0,), 5))

    _, checked = bench.events_of((SIDE, ChunkDone), (SIDE, Checked))

    assert checked.worst < 1 and checked.max_error < 1e-12


def test_a_failing_fill_fails_its_job_only(bench: Bench) -> None:
    bench.order(prepare(MAIN, answer=False), prepare(SIDE, answer=False))
    bench.order(Fill(SIDE, 0, "no array", 0, UNITS, seed=3), run(MAIN, 24))

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

        linked.events_of((MAIN, Prepared), (SIDE, Prepared), (SIDE, ChunkDone))


def test_an_emulated_core_computes_one_chunk_at_a_time(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    config = DeviceConfig(kind="emulated", compute=Cost(unit="100us"))
    emulated = Bench(info_of(config), lambda info: open_device(info, config))
    with contextlib.closing(emulated):
        emulated.order(prepare(MAIN), prepare(SIDE), run(MAIN, 24), run(SIDE, 24))

        *_, main, _, side = emulated.events_of(*[(j, k) for j in (MAIN, SIDE) for k in DONE])

        ends = sorted(done.times.compute[1] for done in (main, side))
        assert ends[1] - ends[0] >= 24 * 100e-6 - 1e-9


def test_a_rival_that_fails_is_reported_and_its_chunk_is_computed(bench: Bench) -> None:
    chunks = (Chunk(0, 0, 12), Chunk(1, 12, 12, last=True, kernel=1))

    bench.order(prepare(MAIN, rivals=("broken",)), Run(MAIN, 0, chunks))

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

    _, *done = bench.events_of((MAIN, Prepared), *[(MAIN, ChunkDone)] * 4)
    assert [event.times.cold for event in done] == [True, True, False, False]
