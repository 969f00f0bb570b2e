from __future__ import annotations

import mmap

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched.devices.accelerator.pinned import Pins
from hetsched.devices.base import DeviceFault
from hetsched.devices.slot_layout import slot_layout
from hetsched.memory import MemoryDemand
from hetsched.testing.simulated import StrictRuntime
from hetsched.testing.toys import shared
from hetsched.workload import ArraySpec
from hetsched.workload.protocol import array_bytes

PAGE = 4096
SPECS = st.lists(
    st.tuples(
        st.sampled_from(["split", "out", "inout"]),
        st.sampled_from(["float32", "float64", "complex128", "uint8"]),
        st.integers(1, 999),
    ),
    min_size=1,
    max_size=5,
)


@given(parts=SPECS, count=st.integers(1, 50))
def test_arrays_of_a_slot_are_aligned_and_never_overlap(
    parts: list[tuple[str, str, int]], count: int
) -> None:
    specs = [ArraySpec(f"a{i}", r, (n,), d) for i, (r, d, n) in enumerate(parts)]  # type: ignore[arg-type]
    need = sum(n * np.dtype(d).itemsize * (2 if r == "inout" else 1) for r, d, n in parts)
    demand = MemoryDemand(input_bytes=need, work_bytes=0, output_bytes=0)
    layout = slot_layout(specs, {}, demand)

    offsets = layout.offsets(count)

    buffers = [*layout.inputs.values(), *layout.outputs.values()]
    spans = sorted((offsets[b.index], count * array_bytes(b.spec), b.spec.dtype) for b in buffers)
    at = 0
    for start, nbytes, dtype in spans:
        assert start >= at
        assert start % np.dtype(dtype).itemsize == 0
        at = start + nbytes
    assert at <= layout.nbytes(count) == -(-need * count // 512) * 512


@pytest.mark.parametrize(
    ("output", "of", "is_shared"),
    [
        (ArraySpec("y", "out", (8,), "int32"), "x", True),
        (ArraySpec("y", "out", (8,), "float64"), "x", False),
        (ArraySpec("c", "inout", (8,), "float32"), "c", True),
    ],
)
def test_an_output_in_place_has_the_buffer_of_an_input_of_its_size(
    output: ArraySpec, of: str, is_shared: bool
) -> None:
    x = ArraySpec("x", "split", (8,), "float32")
    demand = MemoryDemand(input_bytes=32, work_bytes=0, output_bytes=0)

    layout = slot_layout([x, output], {output.name: of}, demand)

    assert (layout.outputs[output.name].index == layout.inputs[of].index) is is_shared


def test_the_least_recently_used_mapping_makes_room_and_kept_ones_stay() -> None:
    runtime = StrictRuntime()
    pins = Pins(runtime, 3 * PAGE, PAGE)
    old, kept, new = (shared((n * PAGE,), "uint8") for n in (1, 1, 2))
    pins.cover(old)
    pins.begin_job()
    pins.cover(kept)

    assert pins.cover(new) is not None
    assert set(runtime.pins) == {kept.ctypes.data, new.ctypes.data, new.ctypes.data + PAGE}
    assert pins.cover(shared((2 * PAGE,), "uint8")) is None
    assert "quota" in pins.refused


def test_memory_that_can_not_be_unpinned_stays_mapped_until_the_process_ends() -> None:
    """Copies to it may still be going on."""
    runtime, mapping = StrictRuntime(), mmap.mmap(-1, 3 * PAGE)
    pins = Pins(runtime, 1 << 30, PAGE)
    array = np.frombuffer(mapping, np.uint8)
    pins.cover(array)
    del runtime.pins[array.ctypes.data + PAGE]
    del array

    with pytest.raises(DeviceFault, match="can't be unpinned"):
        pins.clear()
    with pytest.raises(BufferError):
        mapping.close()
