"""What holds for every split, by drawn models; the optimum by the table method."""

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hetsched.models import Affine, Constant, PiecewiseLinear, SpeedFunction
from hetsched.partition import constant, geometric
from hetsched.partition.distribution import priced
from hetsched.partition.rounding import round_greedy

seconds = st.floats(1e-3, 100)
knots = st.lists(st.tuples(st.integers(1, 60), seconds), min_size=1, max_size=6)
curves = (
    st.builds(Constant, seconds)
    | st.builds(Affine, seconds, st.floats(0, 10))
    | knots.map(PiecewiseLinear)
)
machines = st.lists(curves, min_size=1, max_size=4)
loads = st.integers(0, 20)


def optimum(models: list[SpeedFunction], load: int, limits: list[int]) -> float:
    """Least makespan over all splits."""
    splits = product(*(range(min(load, limit) + 1) for limit in limits[:-1]))
    splits = (split for split in splits if 0 <= load - sum(split) <= limits[-1])  # type: ignore[assignment]
    table = [[float(model.time(x)) for x in range(load + 1)] for model in models]
    return min(
        max(row[x] for row, x in zip(table, (*split, load - sum(split)), strict=True))
        for split in splits
    )


@settings(max_examples=150)
@given(machines, loads, st.data())
def test_the_split_is_the_optimum(
    models: list[SpeedFunction], load: int, data: st.DataObject
) -> None:
    drawn = [data.draw(st.none() | st.integers(0, 20)) for _ in models]
    limits = [load if limit is None else limit for limit in drawn]
    if sum(limits) < load:
        drawn[0], limits[0] = None, load

    found = geometric(models, load, drawn)

    assert sum(found.shares) == load
    assert all(0 <= share <= limit for share, limit in zip(found.shares, limits, strict=True))
    assert found.makespan == pytest.approx(optimum(models, load, limits), rel=1e-12)


@given(machines, st.integers(0, 5000))
def test_the_split_is_that_of_greedy_from_zero(models: list[SpeedFunction], load: int) -> None:
    greedy = round_greedy(models, [0.0] * len(models), load, [load] * len(models))

    expected = priced(models, greedy).makespan

    assert geometric(models, load).makespan == pytest.approx(expected, rel=1e-12)


@given(machines, st.integers(1, 5000))
def test_no_other_method_finishes_sooner(models: list[SpeedFunction], load: int) -> None:
    found = geometric(models, load).makespan * (1 - 1e-12)
    even = [load // len(models) + (i < load % len(models)) for i in range(len(models))]

    assert found <= constant(models, load).makespan
    assert found <= priced(models, even).makespan


@given(machines, st.integers(1, 5000), curves)
def test_another_device_never_raises_the_makespan(
    models: list[SpeedFunction], load: int, more: SpeedFunction
) -> None:
    before = geometric(models, load).makespan

    assert geometric([*models, more], load).makespan <= before * (1 + 1e-12)


@given(machines, st.integers(0, 5000), st.integers(1, 50))
def test_more_load_never_lowers_the_makespan(
    models: list[SpeedFunction], load: int, more: int
) -> None:
    before = geometric(models, load).makespan

    assert geometric(models, load + more).makespan >= before * (1 - 1e-12)


@given(st.permutations([1.37, 2.11, 3.03, 4.7]), st.integers(0, 1000))
def test_the_order_of_devices_does_not_matter(speeds: list[float], load: int) -> None:
    ordered = geometric([Constant(speed) for speed in sorted(speeds)], load).shares

    found = geometric([Constant(speed) for speed in speeds], load).shares

    assert [found[speeds.index(speed)] for speed in sorted(speeds)] == list(ordered)


@given(st.lists(knots, min_size=1, max_size=4), st.integers(0, 1000), st.integers(-20, 20))
def test_slower_by_a_common_factor_is_split_alike(
    devices: list[list[tuple[int, float]]], load: int, power: int
) -> None:
    slower = [[(x, t * 2.0**power) for x, t in device] for device in devices]

    expected = geometric([PiecewiseLinear(device) for device in devices], load).makespan

    found = geometric([PiecewiseLinear(device) for device in slower], load).makespan
    assert found == pytest.approx(expected * 2.0**power, rel=1e-12)
