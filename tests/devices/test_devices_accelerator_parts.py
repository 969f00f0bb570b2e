"""Parts of accelerators and of CUDA: faults, slots, pins, clock, probe."""

from __future__ import annotations

import mmap
import subprocess
import sys
import textwrap

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched.config import DeviceConfig
from hetsched.devices.accelerator.device import DeviceClock
from hetsched.devices.accelerator.pinned import Pins, mapping_of, ranges
from hetsched.devices.accelerator.preparation import ALIGNMENT, block_layout
from hetsched.devices.accelerator.runtime import Fault, translate
from hetsched.devices.accelerator.simulated import SimulatedRuntime
from hetsched.devices.base import DeviceFault, DeviceOutOfMemory
from hetsched.devices.cuda.faults import CudaError, classify
from hetsched.devices.cuda.nvml import Gpu, Snapshot
from hetsched.devices.cuda.probe import budget, select_gpus, visible
from hetsched.devices.slot_layout import slot_layout
from hetsched.errors import InternalError, JobFailed, Unavailable
from hetsched.memory import MemoryDemand
from hetsched.workload import ArraySpec

MIB = 1 << 20


class CuFFTError(RuntimeError):
    def __init__(self, result: int) -> None:
        super().__init__(f"cuFFT {result}")
        self.result = result


class CUBLASError(RuntimeError):
    def __init__(self, status: int) -> None:
        super().__init__(f"{type(self).__name__} {status}")
        self.status = status


class CuSparseError(CUBLASError):
    pass


class CUSOLVERError(CUBLASError):
    pass


class CURANDError(CUBLASError):
    pass


class NVRTCError(CUBLASError):
    pass


@pytest.mark.parametrize(
    ("error", "opening", "fault"),
    [
        (CudaError(35), True, Fault.ABSENT),
        (CudaError(100), True, Fault.ABSENT),
        (CudaError(46), True, Fault.ABSENT),
        (ImportError("libcufft"), True, Fault.ABSENT),
        (CudaError(34), True, Fault.ABSENT),  # the stub library
        (CudaError(304), True, Fault.ABSENT),  # of the operating system, in containers
        (CudaError(807), True, Fault.ABSENT),  # MPS
        (CudaError(719), True, Fault.ABSENT),
        (CUBLASError(1), True, Fault.ABSENT),
        (CudaError(2), True, Fault.MEMORY),
        (CudaError(2), False, Fault.MEMORY),
        (MemoryError(), False, Fault.MEMORY),
        (CuFFTError(2), False, Fault.MEMORY),
        (CUBLASError(3), False, Fault.MEMORY),
        (CudaError(700), False, Fault.STICKY),
        (CudaError(719), False, Fault.STICKY),
        (CudaError(999), False, Fault.STICKY),
        (CuFFTError(6), False, Fault.STICKY),
        (CUBLASError(13), False, Fault.STICKY),
        (CuSparseError(2), False, Fault.MEMORY),
        (CuSparseError(11), False, Fault.MEMORY),
        (CuSparseError(6), False, Fault.STICKY),
        (CuSparseError(3), False, Fault.USAGE),
        (CUSOLVERError(2), False, Fault.MEMORY),
        (CUSOLVERError(7), False, Fault.STICKY),
        (CURANDError(102), False, Fault.MEMORY),
        (CURANDError(201), False, Fault.STICKY),
        (NVRTCError(1), False, Fault.MEMORY),
        (NVRTCError(6), False, Fault.USAGE),
        (CudaError(1), False, Fault.USAGE),
        (CudaError(712), False, Fault.USAGE),
        (CuFFTError(8), False, Fault.USAGE),
        (CuFFTError(5), False, Fault.PLAN),
        (ValueError("shape"), False, Fault.USAGE),
    ],
)
def test_each_error_has_its_class(error: Exception, opening: bool, fault: Fault) -> None:
    assert classify(error, opening) is fault


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        (Fault.ABSENT, Unavailable),
        (Fault.STICKY, DeviceFault),
        (Fault.PLAN, DeviceFault),
        (Fault.MEMORY, DeviceOutOfMemory),
        (Fault.USAGE, JobFailed),
    ],
)
def test_errors_become_ours_in_one_line(fault: Fault, expected: type[Exception]) -> None:
    raised = translate(ValueError("two\nlines"), "gpu0", fault)

    assert type(raised) is expected
    assert "gpu0" in str(raised)
    assert "\n" not in str(raised)


@given(
    start=st.integers(0, 5000),
    nbytes=st.integers(0, 5000),
    slice_bytes=st.integers(1, 1000),
)
def test_ranges_cover_everything_once_and_cross_no_border(
    start: int, nbytes: int, slice_bytes: int
) -> None:
    at = start
    for first, stop in ranges(start, start + nbytes, slice_bytes):
        assert (first, stop > first) == (at, True)
        assert first // slice_bytes == (stop - 1) // slice_bytes
        at = stop
    assert at == start + nbytes


SPECS = st.lists(
    st.tuples(
        st.sampled_from(["split", "out", "inout"]),
        st.sampled_from(["float32", "float64", "complex128", "uint8"]),
        st.integers(1, 999),
    ),
    min_size=1,
    max_size=5,
)


@given(parts=SPECS, count=st.integers(1, 50), alignment=st.sampled_from([64, 256]))
def test_arrays_of_a_slot_are_aligned_and_never_overlap(
    parts: list[tuple[str, str, int]], count: int, alignment: int
) -> None:
    specs = [ArraySpec(f"a{i}", r, (n,), d) for i, (r, d, n) in enumerate(parts)]  # type: ignore[arg-type]
    need = sum(n * np.dtype(d).itemsize * (2 if r == "inout" else 1) for r, d, n in parts)
    demand = MemoryDemand(input_bytes=need, work_bytes=0, output_bytes=0)
    layout = slot_layout(specs, {}, demand, alignment)

    offsets = layout.offsets(count)

    buffers = [*layout.inputs.values(), *layout.outputs.values()]
    spans = sorted((offsets[b.index], b.nbytes(count), b.spec.dtype) for b in buffers)
    at = 0
    for start, nbytes, dtype in spans:
        assert start >= at
        assert start % np.dtype(dtype).itemsize == 0
        at = start + nbytes
    assert at <= layout.nbytes(count) == -(-need * count // 512) * 512


def test_an_output_in_place_has_the_buffer_of_its_input() -> None:
    specs = [ArraySpec("x", "split", (8,), "float32"), ArraySpec("y", "out", (8,), "int32")]
    demand = MemoryDemand(input_bytes=32, work_bytes=0, output_bytes=0)

    layout = slot_layout(specs, {"y": "x"}, demand, ALIGNMENT)

    assert layout.outputs["y"].index == layout.inputs["x"].index
    assert layout.unit_sizes == (32,)


def test_an_output_in_place_of_a_smaller_input_is_our_bug() -> None:
    specs = [ArraySpec("x", "split", (8,), "float32"), ArraySpec("y", "out", (8,), "float64")]
    demand = MemoryDemand(input_bytes=32, work_bytes=0, output_bytes=64)

    with pytest.raises(InternalError, match="64 bytes per unit against 32"):
        slot_layout(specs, {"y": "x"}, demand, ALIGNMENT)


@given(
    residents=st.dictionaries(st.text(min_size=1), st.integers(1, 9999), max_size=3),
    slots_bytes=st.integers(0, 9999),
)
def test_parts_of_the_block_are_aligned_and_never_overlap(
    residents: dict[str, int], slots_bytes: int
) -> None:
    layout = block_layout(residents, slots_bytes)

    at = 0
    for name, nbytes in residents.items():
        assert layout.residents[name] >= at
        assert layout.residents[name] % ALIGNMENT == 0
        at = layout.residents[name] + nbytes
    assert layout.slots >= at
    assert layout.nbytes >= layout.slots + slots_bytes


def mapped(nbytes: int) -> np.ndarray:
    return np.frombuffer(mmap.mmap(-1, nbytes), np.uint8)


def test_the_mapping_behind_a_view_is_found() -> None:
    mapping = mmap.mmap(-1, 4096)
    views = [
        np.frombuffer(mapping, np.uint8)[5:],
        np.ndarray((4, 4), np.float32, buffer=mapping, offset=64)[1:],
        np.frombuffer(memoryview(mapping)[8:], np.float32).reshape(2, -1),
    ]

    assert [mapping_of(view) for view in views] == [mapping] * 3
    assert mapping_of(np.zeros(3)) is None


def test_a_mapping_is_pinned_once_in_slices() -> None:
    runtime = SimulatedRuntime()
    pins, array, keep = Pins(runtime, 1 << 30, 4096), mapped(10000), set[int]()

    first = pins.cover(array[100:200], keep)
    second = pins.cover(array[9000:], keep)

    assert first is not None
    assert first is second
    base = array.ctypes.data
    assert runtime.pins == {base: 4096, base + 4096: 4096, base + 8192: 1808}


def test_the_least_recently_used_mapping_makes_room_and_kept_ones_stay() -> None:
    runtime = SimulatedRuntime()
    pins = Pins(runtime, 3 * 4096, 4096)
    old, pinned, new = mapped(4096), mapped(4096), mapped(8192)
    pins.cover(old, set())
    keep: set[int] = set()
    pins.cover(pinned, keep)

    assert pins.cover(new, keep) is not None
    assert old.ctypes.data not in runtime.pins
    part = pins.cover(mapped(8192), keep)
    assert part is None
    assert "quota" in pins.refused


def test_a_mapping_that_is_no_longer_used_is_unpinned() -> None:
    runtime = SimulatedRuntime()
    pins, unused, stays = Pins(runtime, 1 << 30), mapped(4096), mapped(4096)
    pins.cover(unused, set())
    pins.cover(stays, set())

    del unused
    pins.sweep()

    assert list(runtime.pins) == [stays.ctypes.data]


def test_a_pinned_mapping_outlives_its_owner_until_it_is_unpinned() -> None:
    runtime = SimulatedRuntime()
    pins, mapping = Pins(runtime, 1 << 30), mmap.mmap(-1, 4096)
    pins.cover(np.frombuffer(mapping, np.uint8), set())

    with pytest.raises(BufferError):
        mapping.close()
    del mapping
    pins.sweep()

    assert runtime.pins == {}


def test_a_pin_that_fails_half_way_leaves_the_first_half() -> None:
    runtime, array = SimulatedRuntime(), mapped(8192)
    runtime.pins[array.ctypes.data + 4096] = 4096
    pins = Pins(runtime, 1 << 30, 4096)

    pinned = pins.cover(array, set())

    assert pinned is not None
    assert (pinned.registered, pinned.is_whole, pins.used) == (4096, False, 4096)
    assert "pinning twice" in pins.refused
    pins.clear()
    assert list(runtime.pins) == [array.ctypes.data + 4096]


def test_of_a_mapping_beyond_the_quota_the_first_slices_are_pinned() -> None:
    runtime, array = SimulatedRuntime(), mapped(5 * 4096)
    pins = Pins(runtime, 4 * 4096, 4096)

    pinned = pins.cover(array, set(), spare=4096)

    base = array.ctypes.data
    assert pinned is not None
    assert list(runtime.pins) == [base, base + 4096, base + 8192]
    assert pinned.covers(array[: 3 * 4096])
    assert not pinned.covers(array[1 : 3 * 4096 + 1])
    assert pins.cover(array, set()) is pinned
    assert pinned.registered == 4 * 4096


def test_memory_that_can_not_be_unpinned_stays_mapped() -> None:
    """Copies to it may still be going on."""
    runtime, mapping = SimulatedRuntime(), mmap.mmap(-1, 3 * 4096)
    pins = Pins(runtime, 1 << 30, 4096)
    array = np.frombuffer(mapping, np.uint8)
    pins.cover(array, set())
    del runtime.pins[array.ctypes.data + 4096]
    del array

    pins.clear()

    assert (runtime.pins, pins.used) == ({}, 0)
    with pytest.raises(BufferError):
        mapping.close()


def test_the_clock_agrees_with_the_hosts() -> None:
    runtime = SimulatedRuntime(costs=lambda phase, units, nbytes: 1.0)
    queue = runtime.queue()
    queue.launch(lambda: None, 1)
    queue.finish()
    clock = DeviceClock(runtime, queue)
    clock.set()
    event = runtime.event()
    queue.launch(lambda: None, 1)
    queue.record(event)
    event.wait()
    at = runtime.host_seconds()

    before = clock.seconds(event)
    clock.follow(event)

    assert before == at
    assert clock.seconds(event) == before


H200 = Gpu(0, "NVIDIA H200", "GPU-aaaa", "0000:01", 140 << 30, 141 << 30)
OTHER = Gpu(1, "NVIDIA T4", "GPU-bbbb", "0000:02", 15 << 30, 16 << 30)
SEEN = Snapshot((H200, OTHER), "580.1", 13000)
GPU = DeviceConfig(kind="gpu")


def test_the_probe_describes_every_gpu() -> None:
    infos, absent = select_gpus(GPU, SEEN, None, cupy=True)

    assert [info.name for info in infos] == ["gpu0", "gpu1"]
    assert absent == {}
    assert infos[0].details["visible"] == "GPU-aaaa"
    assert infos[0].details["cuda"] == "13.0"
    assert (infos[0].kind, infos[0].identity, infos[0].link) == ("cuda", "NVIDIA H200", True)


def test_the_probe_names_the_extra_that_brings_cupy() -> None:
    infos, absent = select_gpus(GPU, SEEN, None, cupy=False)

    assert infos == []
    assert (
        absent["gpu0"]
        == "NVIDIA H200 is present but CuPy isn't installed: pip install 'hetsched[cuda13]'"
    )


def test_the_probe_says_why_there_is_no_gpu() -> None:
    assert select_gpus(GPU, Snapshot(problem="no NVIDIA driver"), None, cupy=True) == (
        [],
        {"gpu0": "no NVIDIA driver"},
    )


def test_the_probe_says_which_of_those_asked_for_are_missing() -> None:
    config = DeviceConfig(kind="gpu", count=3, memory="1GiB")

    infos, absent = select_gpus(config, SEEN, None, cupy=True)

    assert absent == {"gpu2": "this machine has only 2 GPUs"}
    assert [info.memory for info in infos] == [1 << 30, 1 << 30]


def test_gpus_without_a_uuid_are_told_apart_by_their_number() -> None:
    machine = Snapshot((Gpu(0, "GRID T4", ""), Gpu(1, "GRID T4", "")), "580.1", 13000)

    infos, _ = select_gpus(GPU, machine, None, cupy=True)

    assert [info.details["visible"] for info in infos] == ["0", "1"]


SLICES = (
    Gpu(0, "H100 MIG 1g.10gb", "MIG-1111", memory_free=9 << 30, memory_total=10 << 30),
    Gpu(0, "H100 MIG 3g.40gb", "MIG-2222", memory_free=39 << 30, memory_total=40 << 30),
    Gpu(1, "NVIDIA T4", "GPU-bbbb"),
)


@pytest.mark.parametrize(
    ("allowed", "uuids"),
    [
        ("MIG-2222", ["MIG-2222"]),
        ("MIG-2", ["MIG-2222"]),
        ("MIG-", []),
        ("1,0", ["GPU-bbbb", "MIG-1111"]),
        (None, ["MIG-1111", "MIG-2222", "GPU-bbbb"]),
    ],
)
def test_instances_of_a_divided_gpu_are_devices(allowed: str | None, uuids: list[str]) -> None:
    assert [gpu.uuid for gpu in visible(SLICES, allowed)] == uuids


def test_a_divided_gpu_without_an_instance_is_absent() -> None:
    machine = Snapshot((Gpu(0, "NVIDIA H100", "GPU-aaaa", mig=True),), "580.1", 13000)

    infos, absent = select_gpus(GPU, machine, None, cupy=True)

    assert infos == []
    assert "MIG on but no instance" in absent["gpu0"]


@pytest.mark.parametrize(
    ("allowed", "names"),
    [
        (None, ["NVIDIA H200", "NVIDIA T4"]),
        ("1,0", ["NVIDIA T4", "NVIDIA H200"]),
        ("1", ["NVIDIA T4"]),
        ("GPU-b", ["NVIDIA T4"]),
        ("0,-1,1", ["NVIDIA H200"]),
        ("", []),
        ("7", []),
    ],
)
def test_visible_devices_are_those_of_cuda(allowed: str | None, names: list[str]) -> None:
    assert [gpu.name for gpu in visible(SEEN.gpus, allowed)] == names


def test_the_budget_leaves_a_reserve_and_more_for_a_desktop() -> None:
    total = 24 << 30

    assert budget(total, total, False, None) == total - (512 << 20)
    assert budget(total, total, True, None) == total - int(0.1 * total)
    assert budget(total, total, False, 1 << 30) == 1 << 30
    assert budget(100, total, False, None) == 0


def test_probing_imports_neither_cupy_nor_makes_a_context() -> None:
    code = textwrap.dedent("""
        import sys
        from hetsched.config import DeviceConfig
        from hetsched.devices.cuda.probe import detect
        detect(DeviceConfig(kind="gpu"))
        assert "cupy" not in sys.modules
    """)

    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
