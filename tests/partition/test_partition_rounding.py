"""Rounding by itself."""

from hetsched.models import Constant
from hetsched.partition import round_greedy

MODELS = [Constant(speed) for speed in (1, 2, 4)]


def test_what_is_left_goes_to_those_who_end_first() -> None:
    assert round_greedy(MODELS, [1.9, 3.9, 7.9], 14, [99, 99, 99]) == [2, 4, 8]


def test_full_devices_get_nothing_more() -> None:
    assert round_greedy(MODELS, [1.0, 3.0, 7.0], 14, [99, 99, 7]) == [2, 5, 7]


def test_parts_that_are_too_much_are_taken_from_those_who_end_last() -> None:
    assert round_greedy(MODELS, [3.0, 4.0, 8.0], 14, [99, 99, 99]) == [2, 4, 8]


def test_a_part_above_its_limit_is_cut() -> None:
    assert round_greedy(MODELS, [0.0, 0.0, 20.0], 12, [99, 99, 10]) == [1, 1, 10]
