"""Phases with a cost for each call: a batch is cut into powers of two."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest

from hetsched.models import PhaseCurve
from hetsched.models.curves.phases.call_fit import fitted_calls
from hetsched.models.evidence.observations import ObservationWindows

SIZES = [1, 2, 3, 6, 10, 17, 28, 41, 64]


def calls(x: int) -> float:
    """A kernel that takes 40 for each set bit and 100 for each unit."""
    return 40.0 * x.bit_count() + 100.0 * x


def learnt(kernel: Callable[[int], float], runs: int = 3) -> PhaseCurve:
    rng = random.Random(1)
    windows = ObservationWindows(near=1.5)
    for _ in range(runs):
        windows.add_run([(x, kernel(x) * rng.gauss(1, 0.02)) for x in SIZES])
    return PhaseCurve.of(windows)


def test_sizes_never_run_cost_their_calls() -> None:
    curve = learnt(calls)

    assert curve.gap is None and curve.follows_rule
    for x in (31, 32, 63, 127, 128):
        assert curve.time(float(x)) == pytest.approx(calls(x), rel=0.02)


def test_the_rising_curve_lies_between_the_dips() -> None:
    times = learnt(calls).segments.time(np.arange(1.0, 129.0))

    assert (np.diff(times) > 0).all()


def test_no_size_is_tried_where_the_calls_are_known() -> None:
    curve = learnt(calls)

    assert curve.optimistic() is None and curve.pessimistic() is None


@pytest.mark.parametrize(
    "kernel",
    [
        lambda x: 40.0 + 100.0 * x * (3.5 if x >= 20 else 1),
        lambda x: 40.0 + 1600.0 * -(-x // 16),
        lambda x: 40.0 + 100.0 * x * (1 + 1 / (1 + (x / 8) ** 2)),
    ],
    ids=["step", "waves", "small batches slow"],
)
def test_other_kernels_keep_their_sizes(kernel: Callable[[int], float]) -> None:
    curve = learnt(kernel)

    assert not curve.follows_rule
    assert curve.time(28.0) == pytest.approx(kernel(28), rel=0.05)


@pytest.mark.parametrize("units", [[1, 2, 4, 8, 16, 32, 64, 128], [1.5, *range(2, 12)], [3, 5, 7]])
def test_sizes_that_tell_little_of_calls_are_not_fitted(units: list[float]) -> None:
    sizes = np.array(units, dtype=np.float64)

    assert fitted_calls(sizes, 100.0 * sizes, np.ones_like(sizes), 0.02) is None
