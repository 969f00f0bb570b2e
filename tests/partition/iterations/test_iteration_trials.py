"""The way to a split whose times are partly unknown."""

import pytest

from hetsched.partition.balancing.move_policy import MigrationCost
from hetsched.partition.balancing.run_history import Shares
from hetsched.partition.distribution import Distribution
from hetsched.partition.iterations.adaptive.trial_budget import MAX_TRIALS, RENEWAL, TrialBudget
from hetsched.partition.iterations.adaptive.trial_path import TrialPoint, next_step

LOAD = 100
TRIALS = 4


def at(units: int) -> Distribution:
    """A split after which the first device, which gives units away, is the last to end."""
    return Distribution((LOAD - units, units), float(LOAD - units), 0.0)


def way(*survivals: float, failure: float) -> list[TrialPoint]:
    """Points at 10, 20, 30, ... units."""
    return [
        TrialPoint(at(10 * number), survival, failure)
        for number, survival in enumerate(survivals, 1)
    ]


def per_unit(seconds: float) -> MigrationCost:
    def cost(old: Shares, new: Shares) -> float:
        return seconds * abs(old[1] - new[1])

    return cost


def test_a_certain_way_is_gone_at_once() -> None:
    points = way(1.0, failure=0.0)

    step = next_step(at(0), points, 10, per_unit(0.0), TRIALS)

    assert step.point == step.end == points[-1]
    assert step.value == pytest.approx(10 * 10.0)


def test_without_risk_of_a_deep_fall_the_last_point_is_the_next() -> None:
    points = way(1.0, 0.9, 0.8, failure=100.0)

    assert next_step(at(10), points, 1000, per_unit(0.0), TRIALS).point == points[-1]


def test_a_fall_that_costs_more_than_all_iterations_gain_is_not_risked() -> None:
    points = way(1.0, 0.5, failure=1e6)

    step = next_step(at(10), points, 100, per_unit(0.0), TRIALS)

    assert step.point == step.end == points[0]
    assert step.value == 0.0


def test_costly_rows_make_steps_smaller() -> None:
    points = way(1.0, 0.8, 0.6, 0.4, 0.2, failure=100.0)

    cheap, costly = (next_step(at(10), points, 50, per_unit(each), TRIALS) for each in (0.0, 20.0))

    assert costly.point.survival > cheap.point.survival


def test_after_a_fall_rows_go_back_below_it() -> None:
    points = way(1.0, 0.1, failure=2000.0)
    fallen = Distribution((70, 30), 300.0, 0.0)

    step = next_step(fallen, points, 100, per_unit(1.0), TRIALS)

    assert step.point == points[0]
    assert step.value > 0


def test_the_value_counts_the_cost_of_moving() -> None:
    points = way(1.0, failure=0.0)

    free, paid = (
        next_step(at(0), points, 10, per_unit(each), TRIALS).value for each in (0.0, 2.0)
    )

    assert free - paid == pytest.approx(20.0)


def test_with_fewer_trials_steps_are_larger() -> None:
    points = way(1.0, 0.8, 0.6, 0.4, 0.2, failure=100.0)

    few, many = (next_step(at(10), points, 50, per_unit(5.0), trials) for trials in (1, 9))

    assert few.point.survival < many.point.survival


def test_without_trials_only_the_certain_split_remains() -> None:
    points = way(1.0, 0.9, 0.8, failure=100.0)

    step = next_step(at(0), points, 1000, per_unit(0.0), 0)

    assert step.point == step.end == points[0]


def test_a_search_rests_after_some_trials_and_is_resumed_much_later() -> None:
    budget = TrialBudget()
    budget.on_reading()
    for _ in range(MAX_TRIALS):
        budget.take()

    counts = []
    for _ in range(2, RENEWAL + 1):
        counts.append(budget.remaining)
        budget.on_reading()

    assert set(counts) == {0}
    assert budget.remaining == MAX_TRIALS
