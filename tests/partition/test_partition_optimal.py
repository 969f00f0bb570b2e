"""The optimal partitioner, against the table method on times that do what they like."""

from collections.abc import Sequence
from importlib import import_module
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hetsched.errors import DataError, UsageError
from hetsched.models import Akima, Constant, DeviceModel, PiecewiseLinear
from hetsched.partition import constant, geometric, optimal
from hetsched.partition.distribution import priced
from hetsched.partition.optimal import MOST_TIMES
from hetsched.partition.sumset import added


class Table:
    """Times given outright; numbers only if `scalar`."""

    def __init__(self, times: Sequence[float], scalar: bool = False) -> None:
        self._times = np.array([0.0, *times])
        self._scalar = scalar

    def time(self, x: Any) -> Any:
        assert not (self._scalar and isinstance(x, np.ndarray))
        return self._times[x]

    def speed(self, x: Any) -> Any:
        return x / self.time(x)


def least(models: Sequence[Any], load: int, limits: Sequence[int]) -> float:
    """The least makespan by the table method: best(m) = min over x of max(best(m - x), t(x))."""
    best = np.full(load + 1, np.inf)
    best[0] = 0.0
    for model, limit in zip(models, limits, strict=True):
        times = [float(model.time(x)) if x else 0.0 for x in range(min(limit, load) + 1)]
        best = np.array(
            [
                min(max(best[m - x], t) for x, t in enumerate(times[: m + 1]))
                for m in range(load + 1)
            ]
        )
    return float(best[load])


# Few different times, so that there are ties, and many, so that there are none.
duration = st.integers(0, 9).map(float) | st.floats(0.01, 100)
tables = st.lists(duration, min_size=40, max_size=40)
devices = st.lists(st.builds(Table, tables, st.booleans()), min_size=1, max_size=6)


@settings(max_examples=150)
@given(devices, st.integers(0, 40), st.data())
def test_the_split_is_the_optimum(models: list[Table], load: int, data: st.DataObject) -> None:
    drawn = [data.draw(st.none() | st.integers(0, 40)) for _ in models]
    limits = [load if limit is None else limit for limit in drawn]
    if sum(limits) < load:
        drawn[0], limits[0] = None, load

    found = optimal(models, load, drawn)

    assert sum(found.shares) == load
    assert all(0 <= share <= limit for share, limit in zip(found.shares, limits, strict=True))
    assert found.makespan == least(models, load, limits)


@pytest.mark.parametrize("period", [3, 7, 8])
@pytest.mark.parametrize("load", [199, 200])
def test_sizes_of_few_good_ones_are_combined_exactly(period: int, load: int) -> None:
    rng, x = np.random.default_rng(period), np.arange(1, load + 1)
    slow = np.where(x % period, 3.0, 1.0)
    models = [Table((x * slow * rng.uniform(0.5, 2)).tolist()) for _ in range(4)]

    assert optimal(models, load).makespan == least(models, load, [load] * 4)


def test_a_larger_share_can_be_done_sooner() -> None:
    times = [9.0, 9.0, 9.0, 5.0, 9.0, 9.0, 9.0, 9.0, 9.0, 9.0, 9.0, 9.0]

    assert optimal([Table(times)] * 3, 12).shares == (4, 4, 4)
    assert optimal([Table(times)] * 3, 12).makespan == 5.0


@given(
    st.lists(
        st.lists(st.tuples(st.integers(1, 60), st.floats(1e-3, 100)), min_size=1, max_size=6),
        min_size=1,
        max_size=4,
    ),
    st.integers(0, 300),
)
def test_where_times_rise_geometric_finds_the_same(
    knots: list[list[tuple[int, float]]], load: int
) -> None:
    models = [PiecewiseLinear(observed) for observed in knots]

    expected = geometric(models, load).makespan

    assert optimal(models, load).makespan == pytest.approx(expected, rel=1e-12)


@given(devices, st.integers(1, 40))
def test_no_other_method_finishes_sooner(models: list[Table], load: int) -> None:
    found = optimal(models, load).makespan
    even = [load // len(models) + (i < load % len(models)) for i in range(len(models))]

    assert found <= priced(models, even).makespan
    assert optimal([*models, Table([0.5] * 40)], load).makespan <= found


@given(devices, st.integers(0, 40), st.integers(-20, 20))
def test_order_and_a_common_factor_do_not_matter(
    models: list[Table], load: int, power: int
) -> None:
    slower = [
        Table([float(model.time(x)) * 2.0**power for x in range(1, 41)])
        for model in reversed(models)
    ]

    assert optimal(slower, load).makespan == optimal(models, load).makespan * 2.0**power


def test_dips_that_akima_shows_are_used() -> None:
    model = Akima([(10, 1.0), (20, 9.0), (40, 4.0), (60, 9.0)], load=80)

    found = optimal([model, Constant(10.0)], 60)

    assert found.makespan < geometric([model, Constant(10.0)], 60).makespan
    assert found.makespan <= constant([model, Constant(10.0)], 60).makespan


def test_a_device_model_is_split_by_its_total() -> None:
    models = [DeviceModel(Constant(3.0), Constant(100.0)), DeviceModel(Constant(1.0), Constant(1))]

    assert optimal(models, 8).shares == (6, 2)


def test_an_infinite_time_is_a_size_that_cannot_be_done() -> None:
    even = Table([np.inf, 2.0, np.inf, 4.0])

    assert optimal([even, even], 4).shares in {(2, 2)}
    with pytest.raises(DataError, match="no split of 3 units"):
        optimal([even, even], 3)
    with pytest.raises(DataError, match="no split of 4 units"):
        optimal([Table([np.inf] * 4)], 4)


@pytest.mark.parametrize("lie", [-1.0, float("nan")])
def test_a_model_that_lies_is_named(lie: float) -> None:
    with pytest.raises(UsageError, match=r"model of device 1: .* for 3 units"):
        optimal([Constant(1.0), Table([1.0, 1.0, lie, 1.0])], 4)


@pytest.mark.parametrize(
    ("models", "load", "limits", "what"),
    [
        ([], 1, None, "at least one device"),
        ([Constant(1.0)], -1, None, "load: -1"),
        ([Constant(1.0)], 1.5, None, "load: 1.5"),
        ([Constant(1.0)], MOST_TIMES, None, "use geometric"),
        ([PiecewiseLinear()], 1, None, "no observation"),
    ],
)
def test_malformed_requests_are_refused(models: Any, load: Any, limits: Any, what: str) -> None:
    with pytest.raises(UsageError, match=what):
        optimal(models, load, limits)


def test_limits_too_small_for_the_load_say_by_how_much() -> None:
    with pytest.raises(DataError, match=r"100 units is 58 more than .* allow \(42\)"):
        optimal([Constant(1.0), Constant(1.0)], 100, [40, 2])


@given(
    st.sets(st.integers(0, 80), min_size=1),
    st.sets(st.integers(0, 80), min_size=1),
    st.integers(1, 200),
)
def test_all_sums_of_two_sets_are_found(left: set[int], right: set[int], width: int) -> None:
    bits = [np.isin(np.arange(max(numbers) + 1), list(numbers)) for numbers in (left, right)]

    found = np.flatnonzero(added(*bits, width))

    assert set(found.tolist()) == {a + b for a in left for b in right if a + b < width}


@pytest.mark.parametrize("kind", ["sawtooth", "noise"])
def test_ten_thousand_units_on_sixteen_devices_take_few_tests(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng, x, tests = np.random.default_rng(5), np.arange(1, 10001), []
    tooth = x % 64 / 64 if kind == "sawtooth" else rng.uniform(0, 1, len(x))
    models = [Table((x * (1 + tooth) / speed).tolist()) for speed in rng.uniform(50, 500, 16)]
    monkeypatch.setattr(
        import_module("hetsched.partition.optimal"),
        "added",
        lambda *sets: (tests.append(sets[2]), added(*sets))[1],
    )

    found = optimal(models, 10000)

    assert sum(found.shares) == 10000
    assert len(tests) <= 20 * 16
    assert max(tests) <= 1000


def test_the_set_with_fewer_runs_is_the_one_that_is_gone_through(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sumset = import_module("hetsched.partition.sumset")
    odd, all_ = np.arange(100) % 2 == 1, np.full(100, True)
    lengths: list[int] = []
    whole = sumset._smeared
    monkeypatch.setattr(
        sumset,
        "_smeared",
        lambda number, length: (lengths.append(length), whole(number, length))[1],
    )

    added(odd, all_, 50)
    added(all_, odd, 50)

    assert lengths == [100, 100]
