"""The small parts that the workloads share: batches, plan pool, what is installed."""

from __future__ import annotations

import gc
import importlib.metadata

import pytest
from hetsched_workloads import installed
from hetsched_workloads.fft.batched import cache_sized, pieces, powers
from hetsched_workloads.pool import Pool
from hypothesis import given
from hypothesis import strategies as st

from hetsched.errors import UsageError
from hetsched.workload import convert
from hetsched.workload import find as workload_called


@given(count=st.integers(0, 5000), exponent=st.integers(0, 9))
def test_pieces_cover_a_chunk_in_order_with_powers_of_two(count: int, exponent: int) -> None:
    largest = 1 << exponent
    parts = list(pieces(count, largest))
    assert [first for first, _ in parts] == [
        sum(s for _, s in parts[:i]) for i in range(len(parts))
    ]
    assert sum(size for _, size in parts) == count
    assert {size for _, size in parts} <= set(powers(largest))


@given(count=st.integers(1, 10**6))
def test_a_chunk_below_the_largest_plan_is_its_binary_expansion(count: int) -> None:
    parts = list(pieces(count, 1 << 20))
    assert len(parts) == count.bit_count()


def test_powers_go_down_from_the_largest_that_fits() -> None:
    assert powers(6) == (4, 2, 1)
    assert powers(8) == (8, 4, 2, 1)
    assert powers(0) == (1,)


def test_a_batch_fills_the_cache_but_is_no_larger_than_the_chunk() -> None:
    assert cache_sized(32 << 10, 1000, 256 << 10) == 8
    assert cache_sized(32 << 10, 3, 256 << 10) == 2
    assert cache_sized(4 << 20, 1000, 256 << 10) == 1


class Borrower:
    pass


class Plan:
    """Stands for something that costs much to make."""


def test_a_plan_comes_back_when_its_borrower_is_gone() -> None:
    pool: Pool[Plan] = Pool()
    borrower, plan = Borrower(), pool.take("a", Plan)
    pool.lend(borrower, {"a": plan})
    assert pool.take("a", Plan) is not plan
    del borrower
    gc.collect()
    assert pool.take("a", Plan) is plan


def test_a_plan_is_lent_to_one_borrower_at_a_time() -> None:
    pool: Pool[Plan] = Pool()
    for borrower in (Borrower(), Borrower()):
        pool.lend(borrower, {"a": pool.take("a", Plan)})
        del borrower
    gc.collect()
    assert pool.take("a", Plan) is not pool.take("a", Plan)


def test_the_pool_keeps_no_more_than_it_may_and_forgets_the_oldest() -> None:
    pool: Pool[Plan] = Pool(capacity=2)
    plans = {name: Plan() for name in "abc"}
    for name, plan in plans.items():
        borrower = Borrower()
        pool.lend(borrower, {name: plan})
        del borrower
    gc.collect()
    assert pool.take("a", Plan) is not plans["a"]
    assert pool.take("c", Plan) is plans["c"]


def test_a_missing_library_has_no_version(monkeypatch: pytest.MonkeyPatch) -> None:
    assert installed.version("no_such_module_here", "numpy") is None
    assert installed.version("numpy", "no-such-distribution-here") is None
    assert installed.shared_library("no-such-distribution-here", "lib") is None


def test_values_that_are_no_parameters_are_named() -> None:
    workload = workload_called("matrix_update")

    with pytest.raises(UsageError, match=r"^matrix_update needs rows$"):
        convert(workload, {})
    with pytest.raises(UsageError, match=r"^cols: 1\.5 is not a whole number$"):
        convert(workload, {"rows": 4, "cols": 1.5, "inner": 2})
    jacobi = workload_called("jacobi")
    with pytest.raises(UsageError, match=r"^criterion: 'x', choose from: residual, change$"):
        convert(jacobi, {"n": 4, "criterion": "x"})
    with pytest.raises(UsageError, match=r"^criterion: 3 is not text$"):
        convert(jacobi, {"n": 4, "criterion": 3})


def test_the_version_is_that_of_the_distribution() -> None:
    assert installed.version("numpy", "numpy") == importlib.metadata.version("numpy")
