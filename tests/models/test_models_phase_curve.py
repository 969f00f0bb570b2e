from __future__ import annotations

import random

import pytest

from hetsched.errors import UsageError
from hetsched.models import PhaseCurve, Polyline
from hetsched.models.samples import Sample
from hetsched.models.windows import Windows

SIZES = [1, 2, 4, 8, 16, 32]


def step(x: float) -> float:
    """A kernel that takes 3.5 times as long per unit from 20 units on."""
    return 1.0 + x if x < 20 else 1.0 + 3.5 * x


def learnt(runs: list[list[tuple[float, float]]]) -> PhaseCurve:
    windows = Windows(corrects=True)
    for number, run in enumerate(runs, 1):
        for units, seconds in run:
            windows.put(Sample("compute", units, seconds, run=number))
    return PhaseCurve(windows)


def test_a_straight_line_remains_one_under_noise() -> None:
    rng = random.Random(1)
    runs = [[(x, (1 + x) * rng.gauss(1, 0.02)) for x in SIZES] for _ in range(4)]

    curve = learnt(runs)

    assert curve.gap == pytest.approx(1, rel=0.05)
    assert curve.slope == pytest.approx(1, rel=0.05)


def test_a_step_ends_the_line_and_the_curve_passes_through_the_sizes() -> None:
    curve = learnt([[(x, step(x)) for x in SIZES]] * 2)

    assert curve.gap is None and curve.slope is None
    assert [curve.time(x) for x in SIZES] == pytest.approx([step(x) for x in SIZES])
    assert curve.time(64.0) == pytest.approx(step(64), rel=0.01)


def test_below_the_smallest_size_the_line_holds_but_never_above_that_size() -> None:
    curve = learnt([[(x, max(x, 24.0)) for x in (12, 16, 24, 32, 64)]] * 3)

    assert curve.gap is None
    assert 0 < curve.time(1.0) <= curve.time(12.0) == pytest.approx(24)


def test_times_fall_with_size_where_repeats_confirm_it() -> None:
    curve = learnt([[(x, (x.bit_count() + x / 64)) for x in (15, 16, 31, 32, 63, 64)]] * 8)

    assert curve.time(32.0) < curve.time(31.0)
    assert curve.segments.time(31.0) <= curve.segments.time(32.0)


def test_a_table_may_fall() -> None:
    curve = Polyline([(7, 3.0), (8, 1.0), (16, 2.0)])

    assert curve.time(7.5) == pytest.approx(2)
    assert curve.segments.time(7.0) < curve.segments.time(8.0)


@pytest.mark.parametrize("points", [[], [(2, 1.0), (1, 2.0)], [(1, 1.0), (1, 2.0)], [(1, 0.0)]])
def test_a_table_without_increasing_units_is_refused(points: list[tuple[float, float]]) -> None:
    with pytest.raises(UsageError):
        Polyline(points)
