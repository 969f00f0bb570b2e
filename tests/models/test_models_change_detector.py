"""A change of speed is confirmed after three runs; noise and outliers are not one."""

import numpy as np
import pytest

from hetsched.models import PiecewiseLinear
from hetsched.models.evidence.change_detector import RUNS_TO_CONFIRM, ChangeDetector
from hetsched.models.evidence.observations import ObservationWindows


def first_confirmed(ratios: list[float]) -> int:
    """The run, counted from 1, in which a change is confirmed; 0: never."""
    detector = ChangeDetector()
    for run, ratio in enumerate(ratios, 1):
        if detector.add(run, ratio):
            return run
    return 0


@pytest.mark.parametrize("change", [20.0, 2.0, 1.4, 0.7, 0.5, 0.1])
def test_a_change_is_confirmed_after_three_runs(change: float) -> None:
    assert first_confirmed([1.0] * 5 + [change] * 9) == 5 + RUNS_TO_CONFIRM


@pytest.mark.parametrize("change", [1.2, 1 / 1.2])
def test_a_change_by_a_fifth_takes_six(change: float) -> None:
    assert first_confirmed([1.0] * 5 + [change] * 9) == 5 + 6


def test_ratios_within_the_noise_are_left_to_the_medians() -> None:
    assert first_confirmed([1.07] * 500) == 0


@pytest.mark.parametrize("ratios", [[20.0], [20.0, 20.0], [20.0, 0.05, 20.0], [1.5, 1.0, 1.5]])
def test_one_or_two_outliers_are_not_a_change(ratios: list[float]) -> None:
    assert first_confirmed([1.0, *ratios, *[1.0] * 9]) == 0


def test_alternating_outliers_are_not_a_change() -> None:
    assert first_confirmed([2.0, 0.5] * 8) == 0


@pytest.mark.parametrize("seed", range(20))
def test_five_percent_noise_with_outliers_is_not_a_change(seed: int) -> None:
    rng = np.random.default_rng(seed)
    ratios = np.exp(0.05 * rng.standard_normal(500)) * np.where(rng.random(500) < 0.01, 20, 1)
    assert first_confirmed(ratios.tolist()) == 0


def test_the_runs_since_the_change_are_returned() -> None:
    detector = ChangeDetector()
    confirmed = [detector.add(run, ratio) for run, ratio in enumerate([1.0, 1.04, 2.0, 2.1, 1.9])]
    assert confirmed == [[], [], [], [], [(2, 2.0), (3, 2.1), (4, 1.9)]]


def test_a_suspicion_is_dropped_with_the_noise_that_raised_it() -> None:
    detector = ChangeDetector()
    detector.add(1, 1.1)
    assert detector.suspected_since == 1
    detector.add(2, 0.9)
    detector.add(3, 1.0)
    detector.add(4, 1.0)
    assert detector.suspected_since is None


def test_a_change_is_confirmed_once() -> None:
    curve = PiecewiseLinear([(8, 1.0)] * 9)
    reported = []
    for _ in range(9):
        curve.observe(8, 2.0)
        reported.append(curve.change)
    assert [change is not None for change in reported].index(True) == 2
    assert sum(change is not None for change in reported) == 1
    assert str(reported[2]) == "takes 2 times as long as before, by its last 3 runs"
    assert curve.time(8) == 2.0


def test_sizes_are_watched_separately_because_a_curve_may_have_a_cliff() -> None:
    curve = PiecewiseLinear([(10, 1.0)] * 5 + [(20, 2.0)] * 5 + [(20, 40.0)] * 3)
    assert (curve.time(10), curve.time(20)) == (1.0, 40.0)


def test_near_sizes_are_watched_together_and_other_sizes_keep_their_shape() -> None:
    curve = PiecewiseLinear([(10, 1.0), (12, 1.2), (100, 8.0)] * 2, near=1.5)
    for units in (11, 13, 12):
        curve.observe(units, 0.2 * units)
    assert curve.change is not None
    assert curve.change.factor == pytest.approx(2.0)
    assert curve.time(10) == pytest.approx(2.0)
    assert curve.time(100) == pytest.approx(16.0)


def test_a_suspected_change_is_compared_with_runs_before_it() -> None:
    curve = PiecewiseLinear([(10, 10.0), (11, 11.0), (13, 13.0)], near=1.5)
    for _ in range(3):
        curve.observe(12, 4.0)
    assert curve.change is not None
    assert curve.points[:, 1] == pytest.approx([10 / 3, 11 / 3, 4, 13 / 3])


def known_twice() -> ObservationWindows:
    return ObservationWindows([(10, 1.0), (10, 1.0), (30, 3.0)], near=1.5)


def times(windows: ObservationWindows) -> list[float]:
    return list(windows.medians()[1])


def test_a_change_of_other_work_is_presumed_until_a_run_confirms_it() -> None:
    windows = known_twice()
    windows.apply_change(2.0)
    assert times(windows) == pytest.approx([2.0, 6.0])
    assert windows.is_presumed and windows.copy().is_presumed
    windows.add(10, 2.1)
    assert not windows.is_presumed
    assert times(windows) == pytest.approx([2.0, 6.0], rel=0.1)


def test_a_presumed_change_is_reverted_by_a_run_at_the_old_speed() -> None:
    windows = known_twice()
    windows.apply_change(2.0)
    windows.add(17, 1.7)
    assert not windows.is_presumed
    assert times(windows) == pytest.approx([1.0, 1.7, 3.0])


def test_a_presumed_speedup_is_not_doubtful() -> None:
    windows = known_twice()
    windows.apply_change(0.5)
    assert not windows.is_presumed
    assert times(windows) == pytest.approx([0.5, 1.5])


def test_opposite_presumed_changes_cancel() -> None:
    windows = known_twice()
    windows.apply_change(2.0)
    windows.apply_change(0.5)
    assert not windows.is_presumed
    assert times(windows) == pytest.approx([1.0, 3.0])


def test_observations_that_show_the_change_are_not_scaled_again() -> None:
    windows = ObservationWindows([(10, 1.0)] * 5 + [(10, 2.0)] * 2 + [(30, 6.0)], near=1.5)
    windows.apply_change(2.0)
    assert not windows.is_presumed
    assert times(windows) == pytest.approx([2.0, 6.0])


def test_without_observations_there_is_nothing_to_follow() -> None:
    windows = ObservationWindows(near=1.5)
    windows.apply_change(2.0)
    windows.add(10, 1.0)
    assert (times(windows), windows.is_presumed) == ([1.0], False)
