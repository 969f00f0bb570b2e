"""Constant: one speed, that of the last run."""

import numpy as np

from hetsched.models import Constant


def test_time_is_proportional_to_units() -> None:
    curve = Constant(4.0)

    assert curve.time(10) == 2.5
    assert curve.time(np.array([0, 2, 10])).tolist() == [0.0, 0.5, 2.5]
    assert curve.speed(123) == 4.0
    assert curve.inverse(2.5) == 10.0


def test_only_the_last_run_counts() -> None:
    curve = Constant()

    curve.observe(10, 1.0)
    curve.observe(30, 6.0)

    assert curve.speed(1) == 5.0
    assert curve.points.tolist() == [[30.0, 6.0]]
