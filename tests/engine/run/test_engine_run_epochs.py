from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from hetsched.engine.run.epochs import IterationState
from hetsched.job import BALANCE_METHODS
from hetsched.partition.iterations import IterationBalance

DEVICES = ("cpu0", "cpu1", "gpu0")


@given(
    method=st.sampled_from(BALANCE_METHODS),
    load=st.integers(1, 300),
    granule=st.integers(1, 9),
    epochs=st.lists(st.sets(st.sampled_from(DEVICES), min_size=1), min_size=1, max_size=6),
)
def test_an_epoch_has_all_rows_between_granules_and_no_device_without_any(
    method: str, load: int, granule: int, epochs: list[set[str]]
) -> None:
    iterations = IterationState(DEVICES, 9, IterationBalance(load, 3, method, granule=granule))
    for number, usable in enumerate(epochs):
        epoch = iterations.next_epoch(1, usable, is_paced=False)
        iterations.settle(finished=number, ended=None)
        rows = [high - low for low, high in pairwise(epoch.bounds)]
        assert (epoch.bounds[0], epoch.bounds[-1]) == (0, load)
        assert min(rows) >= 1
        assert not any(cut % granule for cut in epoch.bounds[:-1])
        assert set(iterations.devices_of(epoch)) <= usable


def test_partial_results_are_those_of_the_epoch_that_completed_the_last_iteration() -> None:
    iterations = IterationState(DEVICES, 9, IterationBalance(12, 3, "none"))
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
    iterations = IterationState(DEVICES, 9, balance)
    assert iterations.next_epoch(1, set(DEVICES), is_paced=False).first == 0
    iterations.settle(finished=0, ended=None)
    for _ in range(2):
        epoch = iterations.next_epoch(1, {"cpu0", "cpu1"}, is_paced=False)
        assert (epoch.first, epoch.previous) == (1, (0, 1, 2))
        iterations.settle(finished=1, ended=None, is_paused=True)
