import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import isotonic_regression

from hetsched.models.fits import isotonic

pairs = st.lists(st.tuples(st.floats(0.01, 100), st.integers(1, 5)), min_size=1, max_size=40)


@given(pairs)
def test_it_agrees_with_scipy(drawn: list[tuple[float, int]]) -> None:
    values, weights = np.array(drawn).T

    expected = isotonic_regression(values, weights=weights).x

    assert isotonic(values, weights) == pytest.approx(expected, rel=1e-12)
