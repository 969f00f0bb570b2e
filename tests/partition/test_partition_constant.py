"""The constant partitioner: proportional shares, largest remainders."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched.errors import DataError
from hetsched.models import Constant
from hetsched.partition import constant

HCL = (7696, 5196, 7852, 14418, 8000, 8173, 7288, 7396,
       9037, 8987, 13661, 14194, 11182, 14410, 12008, 15257)  # fmt: skip


def test_the_sixteen_processors_of_the_paper() -> None:
    shares = constant([Constant(speed) for speed in HCL], 10240).shares

    assert shares == (
        478, 323, 488, 896, 497, 508, 453, 460, 562, 559, 849, 882, 695, 896, 746, 948,
    )  # fmt: skip


def test_equal_remainders_go_to_the_first() -> None:
    assert constant([Constant(1.0)] * 3, 4).shares == (2, 1, 1)


def test_what_a_full_device_cannot_take_goes_to_the_others_in_proportion() -> None:
    models = [Constant(speed) for speed in (1, 2, 3, 4)]

    assert constant(models, 100, [5, None, None, None]).shares == (5, 21, 32, 42)


@given(
    st.lists(st.tuples(st.floats(0.01, 100), st.integers(0, 50)), min_size=1, max_size=6),
    st.integers(0, 400),
)
def test_shares_sum_to_the_load_within_the_limits(
    devices: list[tuple[float, int]], load: int
) -> None:
    models, limits = [Constant(speed) for speed, _ in devices], [limit for _, limit in devices]

    if sum(limits) < load:
        with pytest.raises(DataError, match=f"{load - sum(limits)} more"):
            constant(models, load, limits)
        return
    shares = constant(models, load, limits).shares

    assert sum(shares) == load
    assert all(0 <= share <= limit for share, limit in zip(shares, limits, strict=True))


def test_a_speed_as_small_as_numbers_get_is_no_trouble() -> None:
    assert constant([Constant(1.0), Constant(1e-320)], 20).shares == (20, 0)
