import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched.models.windows import MAX_NOISE, smoothed

series = st.lists(
    st.tuples(st.integers(1, 1000), st.floats(0.5, 2.0), st.integers(1, 30)),
    min_size=1,
    max_size=20,
    unique_by=lambda entry: entry[0],
).map(sorted)


def test_without_noise_nothing_is_corrected() -> None:
    assert smoothed([10, 11, 40], [1.0, 1.2, 3.0], [2, 2, 1], 0.0) == [1.0, 1.2, 3.0]


def test_a_repeated_outlier_is_a_cliff() -> None:
    corrected = smoothed([100, 103, 106], [1.0, 20.6, 21.2], [5, 3, 3], 0.05)
    assert corrected == pytest.approx([1.0, 20.6, 21.2], rel=0.1)


@given(series, st.floats(0, MAX_NOISE))
def test_a_size_measured_often_stays_within_its_own_evidence(
    observations: list[tuple[int, float, int]], sigma: float
) -> None:
    units, paces, counts = zip(*observations, strict=True)
    seconds = [size * pace for size, pace in zip(units, paces, strict=True)]
    corrected = smoothed(units, seconds, counts, sigma)
    for before, now, count in zip(seconds, corrected, counts, strict=True):
        if count >= 3:
            wide = np.exp(2 * np.sqrt(np.pi / 2) * sigma / np.sqrt(count))
            assert before / wide * (1 - 1e-9) <= now <= before * wide * (1 + 1e-9)
