"""What plans cost: golden values worked out by hand, and properties of any pipeline."""

import itertools
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_plans_replay import random_model

from hetsched.models import DeviceModel
from hetsched.plans import DevicePlan, Mode, Overlap, Timeline, price, timeline
from hetsched.plans.costs import costs_of
from hetsched.plans.recurrence import prices


class PerUnit:
    """A curve of somebody else: scalars only."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def time(self, x: Any) -> float:
        return float(x) * self._seconds

    def speed(self, x: Any) -> float:
        return 1 / self._seconds


def model(i: float, w: float, o: float, duplex: tuple[float, float] = (1.0, 1.0)) -> DeviceModel:
    return DeviceModel(PerUnit(i + w + o), PerUnit(w), PerUnit(i), PerUnit(o), duplex=duplex)


def plan(*chunks: int, slots: int = 0) -> DevicePlan:
    return DevicePlan((chunks,), Mode.RING if slots else Mode.INSTALLMENTS, slots)


BALANCED = model(1, 2, 1)
LINK_BOUND = model(2, 1, 3)


@pytest.mark.parametrize("overlap", [Overlap.SINGLE, Overlap.FULL])
@pytest.mark.parametrize(
    ("chunks", "seconds"),
    [
        ((4,), 16), ((2, 2), 12), ((1, 2, 1), 10), ((1,) * 4, 10), ((1, 2, 2, 1), 14),
        ((3, 2, 1), 16),
    ],
)  # fmt: skip
def test_compute_bound_plans_cost_the_same_with_one_engine_or_two(
    chunks: tuple[int, ...], seconds: float, overlap: Overlap
) -> None:
    assert timeline(plan(*chunks), BALANCED, overlap).makespan == seconds


@pytest.mark.parametrize(
    ("chunks", "single", "full"),
    [((6,), 36, 36), ((3, 3), 30, 27), ((2, 2, 2), 30, 24), ((1,) * 6, 30, 21)],
)
def test_link_bound_plans_gain_from_a_second_engine(
    chunks: tuple[int, ...], single: float, full: float
) -> None:
    assert timeline(plan(*chunks), LINK_BOUND, Overlap.SINGLE).makespan == single
    assert timeline(plan(*chunks), LINK_BOUND, Overlap.FULL).makespan == full


def test_without_overlap_everything_is_serial() -> None:
    assert timeline(plan(1, 2, 3), LINK_BOUND, Overlap.NONE).makespan == 36


def test_sub_distributions_wait_for_each_other() -> None:
    installments = DevicePlan(((1, 2, 1), (2, 2)))
    assert timeline(installments, BALANCED, Overlap.FULL).makespan == 10 + 12


def test_a_single_engine_copies_in_before_it_copies_the_chunk_before_out() -> None:
    times = timeline(plan(1, 1, 1), LINK_BOUND, Overlap.SINGLE)
    copies = [(c.copy_in[0], f"I{n}") for n, c in enumerate(times.chunks, 1) if c.copy_in]
    copies += [(c.copy_out[0], f"O{n}") for n, c in enumerate(times.chunks, 1) if c.copy_out]
    assert [name for _, name in sorted(copies)] == ["I1", "I2", "O1", "I3", "O2", "O3"]


def test_a_slot_is_used_again_once_its_chunk_was_copied_out() -> None:
    times = timeline(plan(1, 1, 1, 1, slots=2), model(1, 1, 1), Overlap.FULL)
    assert [chunk.copy_in for chunk in times.chunks] == [(0, 1), (1, 2), (3, 4), (4, 5)]
    assert times.makespan == 7


def test_one_slot_makes_a_ring_serial_whatever_the_engines() -> None:
    for overlap in Overlap:
        assert timeline(plan(1, 2, slots=1), BALANCED, overlap).makespan == 12


def test_a_device_without_a_link_only_computes() -> None:
    times = timeline(plan(2, 3), DeviceModel(PerUnit(2), PerUnit(2)), Overlap.FULL)
    assert times.makespan == 10
    assert all(c.copy_in is None and c.copy_out is None for c in times.chunks)


def test_nothing_takes_no_time() -> None:
    assert timeline(DevicePlan(()), BALANCED, Overlap.FULL) == Timeline(0.0, ())


def test_copies_at_once_keep_only_their_share_of_their_pace() -> None:
    """In at half, out at a quarter of their pace while both run."""
    times = timeline(plan(1, 1), model(2, 1, 3, (0.5, 0.25)), Overlap.FULL)
    first, second = times.chunks
    # I1 0-2, I2 2-4 alone until O1 starts at 3: one of its two seconds is left, at half pace until
    # 5; O1 did half a second of its three by then, and goes on alone.
    assert (first.copy_in, second.copy_in) == ((0, 2), (2, 5))
    assert first.copy_out == (3, 7.5)
    assert times.makespan == 10.5


def test_a_full_duplex_link_and_a_fluid_one_that_is_not_slowed_agree() -> None:
    barely = model(2, 1, 3, (1 - 1e-12, 1.0))
    chunks = plan(3, 1, 2, 2, 4, slots=2)
    slowed = timeline(chunks, barely, Overlap.FULL).makespan
    assert slowed == pytest.approx(timeline(chunks, LINK_BOUND, Overlap.FULL).makespan)


phases = st.floats(0.01, 10)
models = st.builds(model, phases, phases, phases, st.sampled_from([(1.0, 1.0), (0.6, 0.8)]))
chunk_lists = st.lists(st.integers(1, 20), min_size=1, max_size=12)


@given(chunk_lists, models, st.integers(0, 4), st.sampled_from(Overlap))
def test_every_pipeline_keeps_its_order_and_its_bounds(
    chunks: list[int], device: DeviceModel, slots: int, overlap: Overlap
) -> None:
    times = timeline(plan(*chunks, slots=slots), device, overlap)
    for before, after in itertools.pairwise(times.chunks):
        for phase in ("copy_in", "compute", "copy_out"):
            assert getattr(before, phase)[1] <= getattr(after, phase)[0] + 1e-9
    for index, chunk in enumerate(times.chunks):
        assert chunk.copy_in is not None
        assert chunk.copy_out is not None
        assert chunk.copy_in[1] <= chunk.compute[0] + 1e-9
        assert chunk.compute[1] <= chunk.copy_out[0] + 1e-9
        if slots and index >= slots:
            freed = times.chunks[index - slots].copy_out
            assert freed is not None
            assert freed[1] <= chunk.copy_in[0] + 1e-9
    assert times.makespan >= device.compute.time(sum(chunks)) - 1e-9


@given(chunk_lists, models, st.integers(2, 4))
def test_more_engines_and_more_slots_never_cost_time(
    chunks: list[int], device: DeviceModel, slots: int
) -> None:
    undisturbed = DeviceModel(device.total, device.compute, device.h2d, device.d2h)
    serial, single, full = (
        timeline(plan(*chunks, slots=slots), undisturbed, overlap).makespan for overlap in Overlap
    )
    more_slots = timeline(plan(*chunks, slots=slots + 1), undisturbed, Overlap.FULL).makespan
    assert more_slots <= full + 1e-9 <= single + 2e-9 <= serial + 3e-9


@pytest.mark.parametrize("overlap", list(Overlap))
def test_many_plans_at_once_cost_what_each_of_them_does(overlap: Overlap) -> None:
    for seed in range(60):
        rng = random.Random(seed)
        device = random_model(rng)
        device = DeviceModel(device.total, device.compute, device.h2d, device.d2h)
        chunks = [[rng.randint(1, 20) for _ in range(rng.randint(1, 12))] for _ in range(5)]
        slots = [rng.randint(0, 5) for _ in chunks]
        batch = prices(chunks, slots, costs_of(device, 20, overlap), overlap)
        for sizes, count, seconds in zip(chunks, slots, batch.tolist(), strict=True):
            each = plan(*sizes, slots=count)
            assert seconds == pytest.approx(price(each, device, overlap), rel=1e-9)


def test_copies_are_stretched_to_what_they_take_in_the_steady_state() -> None:
    device = model(3, 1, 2, (0.8, 0.9))
    chunks = plan(*(1,) * 200, slots=3)
    (stretched,) = prices([chunks.chunks], 3, costs_of(device, 1, Overlap.FULL), Overlap.FULL)
    assert stretched == pytest.approx(price(chunks, device, Overlap.FULL), rel=0.01)
