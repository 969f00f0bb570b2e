"""Noise and single wild runs cost little, with one seed."""

import pytest

from benchmarks.learning.noisy import MAX_MEAN, mean_ratio


@pytest.mark.parametrize("are_equal", [False, True])
def test_a_split_is_kept_in_noise(are_equal: bool) -> None:
    assert mean_ratio(0, 100, are_equal=are_equal) <= MAX_MEAN
