"""Epochs: shares of the devices that take part, and where the next epoch begins."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hetsched.engine.run.epochs import IterationState, bounds_of, shares_of
from hetsched.partition.iterations import IterationBalance

DEVICES = ("cpu0", "cpu1", "gpu0")


def test_of_too_many_devices_those_with_the_fewest_rows_are_left_out() -> None:
    shares = shares_of({"cpu0": 1, "cpu1": 5, "gpu0": 3}, DEVICES, 2, 1)
    assert shares == {"cpu1": 1, "gpu0": 1}


@given(
    load=st.integers(1, 300),
    granule=st.integers(1, 9),
    wanted=st.lists(st.integers(0, 100), min_size=1, max_size=6),
)
def test_shares_are_all_rows_and_none_is_empty(load: int, granule: int, wanted: list[int]) -> None:
    devices = [f"d{i}" for i in range(len(wanted))]
    shares = shares_of(dict(zip(devices, wanted, strict=True)), devices, load, granule)
    assert sum(shares.values()) == load
    assert min(shares.values()) >= 1
    assert all(bound % granule == 0 for bound in bounds_of(tuple(shares.values()))[:-1])


@given(
    granule=st.integers(1, 70),
    wanted=st.lists(st.integers(1, 9), min_size=1, max_size=6),
    rest=st.integers(0, 69),
)
def test_a_split_between_granules_is_kept(granule: int, wanted: list[int], rest: int) -> None:
    """Else the balance would wait for the times of a split that nobody computes."""
    rows = {f"d{i}": granule * count for i, count in enumerate(wanted)}
    rows[f"d{len(rows) - 1}"] -= rest % granule

    assert shares_of(rows, list(rows), sum(rows.values()), granule) == rows


def state() -> IterationState:
    balance = IterationBalance(12, 3, "none")
    return IterationState(DEVICES, 12, 1, 9, balance)


def test_partial_results_are_those_of_the_epoch_that_completed_the_last_iteration() -> None:
    iterations = state()
    iterations.next_epoch(1, set(DEVICES), is_paced=False)
    iterations.settle(finished=4, ended=None)
    second = iterations.next_epoch(1, {"cpu0", "cpu1"}, is_paced=False)
    assert (second.first, second.previous) == (5, (0, 1, 2))

    iterations.settle(finished=4, ended=None)  # it completed none
    third = iterations.next_epoch(1, {"cpu0"}, is_paced=False)
    assert (third.first, third.previous, third.bounds) == (5, (0, 1, 2), (0, 12))

    iterations.settle(finished=5, ended=None)
    assert iterations.next_epoch(1, set(DEVICES), is_paced=False).previous == (0,)


def test_rounds_of_a_warm_up_repeat_the_first_iteration() -> None:
    balance = IterationBalance(12, 3, "functional", warm_up=True)
    iterations = IterationState(DEVICES, 12, 1, 9, balance)
    assert iterations.next_epoch(1, set(DEVICES), is_paced=False).first == 0
    iterations.settle(finished=0, ended=None)
    for _ in range(2):
        epoch = iterations.next_epoch(1, {"cpu0", "cpu1"}, is_paced=False)
        assert (epoch.first, epoch.previous) == (1, (0, 1, 2))
        iterations.settle(finished=1, ended=None, is_paused=True)
