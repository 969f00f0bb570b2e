"""Iterative jobs in Python: options, progress while they run, and their result."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from daemon_harness import Harness

from hetsched.client.client import Client
from hetsched.client.job import IterativeResult, Job
from hetsched.errors import TryAgain, UsageError
from hetsched.explain import Explanation
from hetsched.explain.records import IterationHistory, IterationSpan
from hetsched.job import Done, Failed, JobReport, Queued, Running

REPORT = JobReport(
    job=1,
    state="done",
    workload="pcg",
    load=9,
    iterations=3,
    residual=1e-9,
    converged=True,
    moves=1,
)


def span(iteration: int) -> IterationSpan:
    one = (1.0,)
    return IterationSpan(
        first=iteration, seconds=1.0, residual=10.0**-iteration, rows=(9,),
        compute=one, transfer=one, wait=one, converge=one, save=one,
    )  # fmt: skip


def explanation(iterations: IterationHistory | None) -> Explanation:
    return Explanation(job=1, state="done", workload="pcg", load=9, iterations=iterations)


def running(iteration: int | None) -> Running:
    return Running(1, "iterating", iteration=iteration, residual=0.5)


def make(iterations: IterationHistory | None = None) -> Job:
    def fetch(end: Done | Failed) -> dict[str, Any]:
        return {"x": np.arange(3.0)}

    return job_with(fetch, lambda job, seconds: explanation(iterations))


def job_with(
    fetch: Callable[[Done | Failed], Any], explain: Callable[[int, float | None], Explanation]
) -> Job:
    def cancel(job: int) -> None:
        pass

    return Job(1, cancel=cancel, fetch=fetch, explain=explain)


def test_options_reach_the_daemon(harness: Harness, client: Client, tmp_path: Path) -> None:
    client.submit(
        "wait", balance="none", warm_up="dfpa", checkpoint=tmp_path / "c", every="1m", resume="r"
    )

    (spec,) = harness.engine.specs
    assert (spec.balance, spec.warm_up, spec.every) == ("none", "dfpa", 60.0)
    assert spec.checkpoint == str(tmp_path / "c")
    assert spec.resume == str(Path("r").absolute())


def test_the_result_has_outputs_by_name_and_how_it_went() -> None:
    job = make()
    job.advance(Done(1, REPORT))

    result = job.result()

    assert isinstance(result, IterativeResult)
    assert result.x is result["x"]
    assert list(result) == ["x"]
    assert (result.iterations, result.residual, result.converged, result.moves) == (
        3,
        1e-9,
        True,
        1,
    )
    assert repr(result) == "<IterativeResult of x: 3 iterations, residual 1e-09, converged>"


def closing(asked: list[int]) -> Job:
    """A job whose explanation can be had once."""
    history = IterationHistory(devices=("cpu0",), spans=(span(1), span(2)))

    def explain(job: int, seconds: float | None) -> Explanation:
        asked.append(job)
        if len(asked) > 1:
            raise UsageError("closed")
        return explanation(history)

    return job_with(lambda done: {"x": np.arange(3.0)}, explain)


def test_the_history_outlives_the_connection() -> None:
    asked: list[int] = []
    job = closing(asked)
    job.advance(Done(1, REPORT))

    assert job.result() is job.result()

    assert job.result().residuals == (0.1, 0.01)
    assert asked == [1]


def test_a_result_does_not_wait_for_a_history_that_takes_long() -> None:
    def explain(job: int, seconds: float | None) -> Explanation:
        assert seconds is not None, "waits for the next daemon"
        raise TryAgain("the daemon has stopped")

    job = job_with(lambda done: {"x": 1}, explain)
    job.advance(Done(1, REPORT))

    assert job.result().iterations == 3


def test_a_progress_callback_gets_each_batch_of_iterations() -> None:
    job = make()
    seen: list[int | None] = []
    job.add_progress_callback(lambda state: seen.append(state.iteration))

    for state in (Queued(1, 0), running(None), running(2), running(2), running(5)):
        job.advance(state)
    job.advance(Done(1, REPORT))

    assert seen == [2, 5]
