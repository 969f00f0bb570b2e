"""What the report of an iterative job has from its plan."""

from __future__ import annotations

from hetsched.engine.iterating.iteration_report import with_iterations
from hetsched.engine.iterating.iteration_state import IterationState
from hetsched.job import JobReport


def test_the_prediction_of_one_iteration_is_not_that_of_the_job() -> None:
    report = JobReport(job=1, state="done", workload="pcg", load=8, predicted_seconds=0.001)

    assert (
        with_iterations(report, IterationState(("cpu0",), 8, 1, 5), None).predicted_seconds is None
    )
