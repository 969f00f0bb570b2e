from __future__ import annotations

import pytest

from hetsched.device import ChunkTimes
from hetsched.models import DeviceModel
from hetsched.models.history import History
from hetsched.models.samples import Sample, run_samples


def history_of(*runs: list[Sample]) -> History:
    history = History()
    for samples in runs:
        history.add(samples)
    return history


def model_of(history: History) -> DeviceModel:
    model = history.model()
    assert model is not None
    return model


def total(units: int, seconds: float) -> list[Sample]:
    return [Sample("total", units, seconds)]


def test_the_median_of_the_last_five_runs_counts() -> None:
    history = history_of(*[total(10, 1.0)] * 30, *[total(10, 2.0)] * 2)
    assert model_of(history).time(10) == 1.0
    history.add(total(10, 2.0))
    assert model_of(history).time(10) == 2.0


def test_a_run_counts_once_however_many_chunks_it_had() -> None:
    slow = [Sample("compute", 4, 9.0)] * 8
    history = history_of(*[[Sample("h2d", 4, 1.0), Sample("compute", 4, 1.0), *total(8, 3.0)]] * 3)
    history.add([*slow, *total(8, 3.0)])
    assert float(model_of(history).compute.time(4)) == 1.0


def test_its_samples_make_an_equal_history() -> None:
    runs = [total(units, units * pace) for units, pace in ((10, 1), (20, 1.2), (11, 1), (10, 2))]
    history = history_of(*runs)
    other = History(history.runs, history.samples())
    for again in (history, other):
        again.add(total(7, 9.0))
    assert [s.run for s in other.samples()] == [1, 2, 3, 4, 5]
    for units in (5, 7, 10, 20, 50):
        assert model_of(other).time(units) == model_of(history).time(units)


@pytest.mark.parametrize(
    ("known", "others", "pace"),
    [
        ({20: 20.0}, (29, 30, 28, 31, 29), 1.35),
        ({30: 40.5}, (20, 19, 21), 1.0),
        ({60: 60.0, 100: 200.0}, (70, 71, 69), 2.0),
        ({60: 60.0, 100: 350.0}, (95, 94, 96), 1.0),
    ],
    ids=["beyond a cache", "in a cache", "after a step", "before a step"],
)
def test_other_sizes_of_another_speed_are_no_change_of_speed(
    known: dict[int, float], others: tuple[int, ...], pace: float
) -> None:
    history = history_of(*[total(*size) for size in known.items() for _ in range(10)])
    for size in others:
        history.add(total(size, pace * size))
    for size, seconds in known.items():
        assert model_of(history).time(size) == pytest.approx(seconds, rel=0.05)
    assert model_of(history).time(others[0]) == pytest.approx(pace * others[0], rel=0.05)


@pytest.mark.parametrize("factor", [0.5, 1.5])
def test_a_change_of_speed_holds_for_sizes_not_seen_since(factor: float) -> None:
    step = [total(20, 20.0)] * 5 + [total(40, 140.0)] * 2 + [total(20, 20.0)] * 3
    history = history_of(*step, *[total(20, 20.0 * factor)] * 3)
    assert model_of(history).time(20) == pytest.approx(20 * factor)
    assert model_of(history).time(40) == pytest.approx(140 * factor)


@pytest.mark.parametrize("wild", [6.0, 24.0])
def test_one_wild_run_at_a_new_size_is_no_speed_to_compare_with(wild: float) -> None:
    history = history_of(*[total(100, 100.0)] * 5, total(50, 50 * wild), *[total(50, 50.0)] * 3)
    assert model_of(history).time(100) == pytest.approx(100)
    assert model_of(history).time(50) == pytest.approx(50)


# ---- the cost of a call


def core_run(sizes: tuple[int, ...], call: float, factor: float = 1.0) -> list[Sample]:
    """A run of chunks of 1 ms per unit and `call` ms per call."""
    now, chunks = 0.0, []
    for units in sizes:
        seconds = factor * (call + units) * 1e-3
        chunks.append((units, ChunkTimes(compute=(now, now + seconds))))
        now += seconds
    return run_samples(chunks, (), sum(sizes), now, link=False)


def call_seconds(*runs: list[Sample]) -> float:
    return model_of(history_of(*runs)).call_seconds


@pytest.mark.parametrize("call", [10.0, 50.0])
def test_chunks_of_different_sizes_show_what_a_call_costs(call: float) -> None:
    assert call_seconds(core_run((250,) * 4, call), core_run((62,) * 9, call)) == pytest.approx(
        call * 1e-3
    )


def test_one_unit_computed_in_another_way_does_not_hide_what_a_call_costs() -> None:
    one = core_run((1, 1, 1), 5.0)
    more = [core_run((size,) * 6, 78.0) for size in (2, 11, 22, 35, 64) for _ in range(2)]
    assert call_seconds(one, *more) == pytest.approx(0.078, rel=0.01)


def test_irregular_units_show_no_cost_of_calls() -> None:
    times = (1.0, 1.9, 0.6, 1.4, 0.8, 2.0)
    runs = [
        core_run((size,) * 3, 1.0, t)
        for size, t in zip((5, 9, 20, 40, 63, 80), times, strict=True)
    ]
    assert call_seconds(*runs) == 0.0


def test_chunks_of_one_size_show_no_cost_of_calls_nor_does_one_that_is_tiny() -> None:
    assert call_seconds(core_run((36,) * 80, 50.0)) == 0.0
    assert call_seconds(core_run((36,) * 8, 0.3), core_run((9,) * 8, 0.3)) == 0.0
