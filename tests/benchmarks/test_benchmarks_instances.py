"""Ratios over fresh processes, choice of cases, comparison with a saved result."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from benchmarks import fifth_job
from benchmarks.fresh_runs import error_by_previous, judged_error, judged_spread
from benchmarks.instances import Instance, fastest, race, speed
from benchmarks.quick import compared
from benchmarks.warm_cases import selected


def test_a_ratio_of_instances_is_the_median_of_the_rounds() -> None:
    ours = [Instance((1.0, 9.0, 1.0)), Instance((2.0,)), Instance((1.0,))]
    theirs = [Instance((2.0,)), Instance((2.0,)), Instance((3.0,))]

    assert speed(ours, theirs).median == 2.0


def test_slow_contestants_leave_after_the_first_round() -> None:
    calls = {"hetsched": 0, "fast": 0, "slow": 0, "missing": 0}

    def contestant(name: str, seconds: float | None) -> Callable[[], Instance | None]:
        def run() -> Instance | None:
            calls[name] += 1
            return None if seconds is None else Instance((seconds,))

        return run

    found = race(
        {
            "hetsched": contestant("hetsched", 9.0),
            "fast": contestant("fast", 1.0),
            "slow": contestant("slow", 1.4),
            "missing": contestant("missing", None),
        },
        instances=5,
        seed="x",
        subject="hetsched",
    )

    assert calls == {"hetsched": 5, "fast": 5, "slow": 1, "missing": 1}
    assert fastest(found, "hetsched") == "fast"


def test_cases_are_chosen_by_batch_or_by_name() -> None:
    assert [case.name for case in selected(["64x500x500"])] == [
        "64x500x500 complex64",
        "64x500x500 complex128",
    ]
    assert [case.name for case in selected(["64x500x500 complex64"])] == ["64x500x500 complex64"]
    assert len(selected([])) == 30
    with pytest.raises(ValueError, match="no case 'all'"):
        selected(["all"])


def entry(ours: float, ratio: float) -> dict[str, Any]:
    return {
        "case": "c",
        "ours": ours,
        "ratio": {"ducc": ratio},
        "fastest": "ducc",
        "when": "then",
    }


@pytest.mark.parametrize(
    ("ours", "ratio", "is_slower"), [(1.5, 1.0, False), (1.0, 0.8, False), (1.5, 0.8, True)]
)
def test_slower_means_in_time_and_against_the_library(
    ours: float, ratio: float, is_slower: bool
) -> None:
    assert compared(entry(ours, ratio), entry(1.0, 1.0))[1] == is_slower


def test_a_prediction_is_judged_from_the_third_run_on() -> None:
    runs = [(None, 9.0), (1.0, 9.0), (1.0, 1.1), (1.0, 1.0), (2.0, 1.8)]

    assert judged_error(runs) == pytest.approx(0.1)
    assert judged_error([*runs[:2], (None, 1.0)]) == math.inf


def first_jobs(early: float, late: float) -> dict[str, Any]:
    seconds = [9.0, 9.0, 9.0, 9.0, early, *[1.0] * 40, *[late] * 4, 7.0]
    return {"seconds": seconds, "early": ["ducc0"], "late": ["mkl"]}


def test_the_fifth_job_is_compared_with_the_fiftieth_of_its_own_daemon() -> None:
    runs = [first_jobs(2.2, 2.0), first_jobs(3.0, 1.0), first_jobs(1.0, 1.0)]
    entry = {"case": "c", "runs": runs}

    assert fifth_job.ratios(entry) == pytest.approx([1.0, 1.1, 3.0])
    (worst, typical) = fifth_job.as_result([entry]).bars
    assert (worst.value, worst.holds, typical.value) == (pytest.approx(1.1), False, worst.value)
    assert fifth_job.row(entry)[4:6] == ("3 ducc0", "3 mkl")


def test_short_jobs_have_no_bar() -> None:
    short = {**first_jobs(0.004, 0.002), "seconds": [0.004] * 45 + [0.002] * 5}
    assert not fifth_job.as_result([{"case": "c", "runs": [short]}]).bars


def test_the_spread_of_judged_runs_is_the_error_of_their_median() -> None:
    runs = [(None, 9.0), (9.0, 9.0), (1.0, 1.0), (1.0, 1.0), (1.0, 1.1), (1.0, 2.0), (1.0, 0.9)]

    assert judged_spread(runs) == pytest.approx(0.1)


def test_the_previous_run_may_serve_as_the_prediction() -> None:
    runs = [(None, 9.0), (9.0, 1.0), (9.0, 2.0), (9.0, 2.2), (9.0, 2.2)]

    assert error_by_previous(runs) == pytest.approx(0.1)
