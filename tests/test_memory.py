"""MemoryDemand: bytes of chunks, and the largest chunk that fits."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched.errors import DataError, UsageError
from hetsched.memory import MAX_TABULATED_SIZES, MemoryDemand


def demand(**changes: object) -> MemoryDemand:
    values = {"input_bytes": 4, "work_bytes": 10, "output_bytes": 6, **changes}
    return MemoryDemand(**values)  # type: ignore[arg-type]


def test_bytes_may_be_functions_of_units() -> None:
    found = demand(work_bytes=lambda units: 100 + units, output_bytes=lambda units: units**2)

    assert (found.data(3), found.workspace(3)) == (21, 103)


@given(
    st.integers(1, 1000),
    st.integers(1, 5),
    st.integers(0, 20000),
    st.integers(0, 500),
    st.sampled_from(["sum", "max"]),
)
def test_the_most_is_the_largest_that_fits(
    load: int, together: int, limit: int, resident: int, work: str
) -> None:
    found = demand(limit=limit, resident_bytes=resident, work=work)
    if not found.fits([1] * together):
        with pytest.raises(DataError, match=f"the limit is {limit}"):
            found.max_chunk(load, together)
        return

    most = found.max_chunk(load, together)

    assert 1 <= most <= load
    assert found.fits([most] * together)
    assert most == load or not found.fits([most + 1] * together)


SIZES = ["input_bytes", "work_bytes", "output_bytes"]
WRONG = [float("nan"), float("inf"), -1, "x", [1], 1j]


@pytest.mark.parametrize("name", [*SIZES, "resident_bytes", "limit"])
def test_bytes_are_numbers(name: str) -> None:
    for bad in (*WRONG, True, *([None] if name != "limit" else [])):
        with pytest.raises(UsageError, match=f"^{name}: ") as caught:
            demand(**{name: bad})
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", SIZES)
def test_functions_must_return_bytes(name: str) -> None:
    for bad in (*WRONG, None):
        found = demand(limit=100, **{name: lambda units, bad=bad: bad})
        for ask in (found.fits, found.need):
            with pytest.raises(UsageError, match=f"^{name} of 3 units: "):
                ask([3])
        with pytest.raises(UsageError, match=f"^{name} of 1 units: "):
            found.max_chunk(9)


def test_a_function_that_fails_is_named() -> None:
    def failing(units: int) -> float:
        raise KeyError("no\nsuch plane")

    with pytest.raises(UsageError, match="work_bytes of 3 units failed, KeyError") as caught:
        demand(work_bytes=failing).need([3])
    assert "\n" not in str(caught.value)


def odd_batches(units: int) -> int:
    """More for an odd number of units than for the next even one."""
    return 100 * units + (3000 * units if units % 2 else 0)


def test_a_monotone_demand_covers_every_smaller_chunk() -> None:
    raised = demand(work_bytes=odd_batches).monotone()

    assert [raised.workspace(units) for units in range(1, 5)] == [3100, 3100, 9300, 9300]
    assert raised.workspace(400) == odd_batches(399)
    assert raised.data(7) == 70


def test_a_monotone_demand_of_very_many_units_evaluates_few_sizes() -> None:
    sizes: list[int] = []

    def counted(units: int) -> int:
        sizes.append(units)
        return odd_batches(units)

    raised = demand(work_bytes=counted).monotone()
    units = 10**9

    assert raised.workspace(units) >= 0.9 * odd_batches(units - 1)
    assert len(sizes) < 2 * MAX_TABULATED_SIZES
