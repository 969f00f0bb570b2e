from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched.explain.recorder import received
from hetsched.explain.records import RowMove
from hetsched.job import BALANCE_METHODS, IterationSeconds
from hetsched.models import Constant
from hetsched.partition.iterations import IterationBalance, TimedIteration


def timed(iteration: int, rows: Sequence[int], *seconds: float, count: int = 1) -> TimedIteration:
    """An iteration in which each device computed for so many seconds; 0: it took no part."""
    times = [
        IterationSeconds(each, wait=max(seconds) - each) if each else None for each in seconds
    ]
    return TimedIteration(iteration, tuple(rows), times, count)


def test_rows_move_to_the_faster_device_after_one_iteration() -> None:
    balance = IterationBalance(300, 2)

    move = balance.tell([timed(1, (150, 150), 1.5, 0.75)], remaining=99)

    assert move == RowMove(
        rows=(100, 200), reason="imbalance", expected_before=1.5, expected_after=1.0,
        expected_cost=0.0,
    )  # fmt: skip
    assert balance.rows == (100, 200)


def test_a_granule_is_never_divided() -> None:
    balance = IterationBalance(1003, 2, granule=100)

    balance.tell([timed(1, balance.rows, 1.0, 3.0)])

    assert balance.rows == (900, 103)


def test_rows_stay_if_moving_them_costs_more_than_the_remaining_iterations_gain() -> None:
    balance = IterationBalance(300, 2, seconds_per_row=0.01)

    stays = balance.tell([timed(1, (150, 150), 1.5, 0.75)], remaining=0)
    moves = balance.tell([timed(2, (150, 150), 1.5, 0.75)], remaining=10)

    assert stays is None
    assert moves is not None
    assert moves.expected_cost == pytest.approx(0.5)


@pytest.mark.parametrize(("moves", "seconds_per_row"), [(1, 0.0), (2, 0.01)])
def test_two_first_iterations_with_a_split_show_the_cost_of_moving(
    moves: int, seconds_per_row: float
) -> None:
    balance = IterationBalance(300, 2, "none")
    balance.tell([timed(1, (150, 150), 1.5, 1.5)])
    for k, rows in enumerate([(100, 200), (150, 150)][:moves]):
        first = [count / 100 + 0.5 * (device == 1 - k) for device, count in enumerate(rows)]
        balance.tell([timed(2 * k + 2, rows, *first)])
        balance.tell([timed(2 * k + 3, rows, *(count / 100 for count in rows))])

    move = balance.lose(0)

    assert move is not None
    assert move.expected_cost == pytest.approx(150 * seconds_per_row)


@pytest.mark.parametrize("method", ["auto", "functional", "constant", "imbalance-factor", "none"])
def test_lost_devices_have_no_rows_until_they_come_back(method: str) -> None:
    balance = IterationBalance(300, 3, method)
    balance.tell([timed(1, (100, 100, 100), 1.0, 1.0, 1.0)])

    lost = balance.lose(1)
    balance.tell([timed(2, balance.rows, 1.5, 0.0, 1.5)])
    back = balance.restore(1)

    assert lost is not None and lost.rows == (150, 0, 150)
    assert back is not None and back.rows == (100, 100, 100)


def test_models_of_earlier_jobs_give_the_first_split() -> None:
    models = [Constant(10.0), Constant(20.0)]

    assert IterationBalance(300, 2, models=models).rows == (100, 200)
    assert IterationBalance(300, 2, "none", models=models).rows == (100, 200)
    assert IterationBalance(300, 2, models=[Constant(10.0), None]).rows == (150, 150)


@pytest.mark.parametrize("method", BALANCE_METHODS)
def test_a_device_that_is_absent_leaves_the_others_the_split_of_earlier_jobs(method: str) -> None:
    models = [Constant(10.0), None, Constant(20.0)]

    balance = IterationBalance(300, 3, method, models=models, absent=[1])

    assert balance.rows == (100, 0, 200)
    assert balance.restore(1) is not None
    assert balance.rows[1] > 0


@pytest.mark.parametrize("method", ["auto", "functional", "constant", "imbalance-factor", "none"])
@pytest.mark.parametrize(("speeds", "rows"), [((1.0, 3.0), (75, 225)), ((3.0, 1.0), (225, 75))])
def test_a_warm_up_counts_for_more_than_what_earlier_jobs_have_shown(
    method: str, speeds: tuple[float, float], rows: tuple[int, int]
) -> None:
    models = [Constant(1.0), Constant(3.0)]
    balance = IterationBalance(300, 2, method, models=models, warm_up=True)

    rounds = 0
    while balance.is_warming_up:
        rounds += 1
        times = [n / speed for n, speed in zip(balance.rows, speeds, strict=True)]
        balance.tell([timed(1, balance.rows, *times)])

    assert rounds > 1
    assert balance.rows == rows


def test_without_balancing_the_split_of_the_warm_up_stays_until_devices_change() -> None:
    balance = IterationBalance(300, 3, "none", warm_up=True)
    while balance.is_warming_up:
        first, second, third = balance.rows
        balance.tell([timed(1, balance.rows, first / 1, second / 2, third / 3)])

    assert balance.rows == (50, 100, 150)
    assert balance.tell([timed(1, balance.rows, 90.0, 50.0, 50.0)]) is None
    balance.lose(1)
    assert balance.rows == (75, 0, 225)
    balance.restore(1)
    assert balance.rows == (50, 100, 150)


@pytest.mark.parametrize(("devices", "moved"), [(4, 2), (8, 4), (16, 8)])
def test_one_pair_of_every_four_devices_trades_at_a_time(devices: int, moved: int) -> None:
    balance = IterationBalance(100 * devices, devices, "imbalance-factor")
    before = balance.rows
    for iteration in (1, 2):
        times = [(2 + i / devices) * n / 100 for i, n in enumerate(before)]
        balance.tell([timed(iteration, before, *times)])

    assert sum(a != b for a, b in zip(before, balance.rows, strict=True)) == moved


def test_a_gain_that_is_small_beside_the_waits_moves_nothing() -> None:
    balance = IterationBalance(300, 2)
    times = [IterationSeconds(1e-5, wait=2e-3), IterationSeconds(2e-5, wait=2e-3)]

    for k in range(1, 10):
        assert balance.tell([TimedIteration(k, balance.rows, times)]) is None


def test_a_device_whose_memory_alone_is_unknown_begins_with_half_a_share() -> None:
    assert IterationBalance(500, 3, capacities=[500, 500, None]).rows == (200, 200, 100)
    assert IterationBalance(300, 2, capacities=[300, None]).rows == (200, 100)
    assert IterationBalance(300, 3).rows == (100, 100, 100)


@pytest.mark.parametrize("method", BALANCE_METHODS)
@given(
    known=st.lists(st.none() | st.sampled_from((1e-6, 1e-4, 1e-2)), min_size=2, max_size=4),
    steps=st.lists(st.tuples(st.integers(0, 7), st.sampled_from((1e-6, 1e-4, 1.0)))),
)
def test_all_rows_are_on_present_devices_whichever_leave_return_or_slow_down(
    method: str, known: list[float | None], steps: list[tuple[int, float]]
) -> None:
    models = [None if pace is None else Constant(1 / pace) for pace in known]
    balance, present = (
        IterationBalance(400, len(known), method, models=models),
        {*range(len(known))},
    )
    for number, (device, pace) in enumerate(steps, start=1):
        if device < len(known) and present != {device}:
            (balance.lose if device in present else balance.restore)(device)
            present ^= {device}
        times = [
            IterationSeconds(compute=rows * (pace if i == device % len(known) else 1e-4))
            for i, rows in enumerate(balance.rows)
        ]
        balance.tell([TimedIteration(number, balance.rows, times)])
        assert sum(rows for i, rows in enumerate(balance.rows) if i in present) == 400


CUTS = st.lists(st.integers(0, 40), min_size=2, max_size=2).map(sorted)


@given(CUTS, CUTS)
def test_a_device_receives_the_rows_that_it_did_not_have(
    cuts: list[int], new_cuts: list[int]
) -> None:
    before, after = ([first, second - first, 40 - second] for first, second in (cuts, new_cuts))

    def owners(shares: list[int]) -> list[int]:
        return [device for device, share in enumerate(shares) for _ in range(share)]

    changed = [new for old, new in zip(owners(before), owners(after), strict=True) if new != old]

    assert received(before, after) == tuple(changed.count(i) for i in range(len(before)))
