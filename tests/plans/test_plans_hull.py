"""The convex minorant of points, and curves below the costs of sizes that aren't evaluated."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched.models import Affine, DeviceModel, PiecewiseLinear
from hetsched.plans.bounds.convex_minorant import convex_minorant, rooted_minorant, tangent_below
from hetsched.plans.bounds.sampled_costs import MAX_EXACT_SIZE, sample_sizes, sampled_costs
from hetsched.plans.phase_costs import Floats

heights = st.lists(st.floats(0.01, 100), min_size=1, max_size=40)


def on_sizes(values: list[float]) -> tuple[Floats, Floats]:
    return np.arange(1.0, len(values) + 1), np.array(values)


@given(heights)
def test_a_minorant_is_convex_and_touches_the_points_at_its_corners(values: list[float]) -> None:
    sizes, seconds = on_sizes(values)
    minorant = convex_minorant(sizes, seconds)
    assert (minorant.at(sizes) <= seconds * (1 + 1e-9)).all()
    assert set(minorant.seconds) <= set(values)
    slopes = np.diff(minorant.seconds) / np.diff(minorant.sizes)
    assert (np.diff(slopes) >= 0).all()


def test_a_parabola_that_ends_level_takes_many_passes() -> None:
    sizes = np.arange(1.0, 2001.0)
    seconds = np.minimum(sizes**2, 1000.0**2)
    minorant = convex_minorant(sizes, seconds)
    assert (minorant.at(sizes) <= seconds * (1 + 1e-9)).all()
    assert minorant.sizes[-1] == 2000
    assert 260 < len(minorant.sizes) < 280  # the tangent from the far end touches at 268


@given(heights)
def test_a_rooted_minorant_never_grows_per_unit(values: list[float]) -> None:
    sizes, seconds = on_sizes(values)
    convex = convex_minorant(sizes, seconds)
    rooted = rooted_minorant(convex)
    assert (rooted.at(sizes) <= convex.at(sizes) * (1 + 1e-9)).all()
    assert (np.diff(rooted.at(sizes) / sizes) <= 1e-9).all()


@given(heights, st.integers(1, 50))
def test_a_tangent_is_below_the_curve_and_not_negative(values: list[float], size: int) -> None:
    sizes, seconds = on_sizes(values)
    line = tangent_below(convex_minorant(sizes, seconds), size)
    assert min(line) >= 0
    assert (line.gap + line.slope * sizes <= seconds * (1 + 1e-9)).all()


@pytest.mark.parametrize("largest", [1, MAX_EXACT_SIZE, MAX_EXACT_SIZE + 1, 100_000, 10**9])
def test_sampled_sizes_are_exact_at_both_ends_and_near_each_other(largest: int) -> None:
    sizes = sample_sizes(largest)
    assert (sizes[0], sizes[-1]) == (1, largest)
    assert (np.diff(sizes) >= 1).all()
    assert (sizes[1:] - 1 <= sizes[:-1] * (1 + 1.5 / MAX_EXACT_SIZE)).all()
    assert len(sizes) < 1 << 16


@pytest.mark.parametrize("seed", range(5))
def test_sampled_costs_are_nowhere_above_the_costs(seed: int) -> None:
    rng = np.random.default_rng(seed)
    largest = int(rng.integers(2, 100_000))
    knots = np.unique(rng.integers(1, largest + 1, 12))
    steps = PiecewiseLinear(zip(knots, np.cumsum(rng.uniform(0.1, 10, len(knots))), strict=True))
    model = DeviceModel(PiecewiseLinear(), steps, Affine(1e-3, 1e-6), None)
    costs = sampled_costs(model, largest)
    units = np.arange(1.0, largest + 1)
    sampled = np.interp(units, costs.sizes, costs.phases[1])
    assert (sampled <= steps.time(units) * (1 + 1e-9)).all()
    half = costs.up_to(largest // 2 + 1)
    assert half.largest == largest // 2 + 1
    assert (np.diff(half.sizes) > 0).all()
