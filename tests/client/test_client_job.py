"""A job's Future, and the result of an iterative one."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from daemon_harness import Harness

from hetsched.client.client import Client
from hetsched.client.connection import EventFollower, JobRequest
from hetsched.client.job import IterativeResult, Job
from hetsched.device import ChunkTimeline, Timeline
from hetsched.errors import DataError, TryAgain, UsageError
from hetsched.explain import DeviceExplanation, Explanation
from hetsched.explain.records import IterationHistory, IterationSpan
from hetsched.job import Done, Failed, JobReport, JobSpec, Queued, Running
from hetsched.transport.messages import Accepted, Events, Submit


def report(state: str) -> JobReport:
    return JobReport(job=1, state=state, workload="w", load=1)


LINE = Timeline(1.0, (ChunkTimeline(1, None, (0.0, 1.0), None),))
DONE = Done(1, report("done"))


def explanation(job: int, seconds: float | None = None) -> Explanation:
    ran = DeviceExplanation(device="cpu0", kind="cpu", variant="v", planned=1, timeline=LINE)
    idle = DeviceExplanation(device="cpu1", kind="cpu", variant="v", planned=0)
    return Explanation(job=job, state="done", workload="w", load=1, devices=(ran, idle))


def make(fetch: Any = lambda end: "result") -> tuple[Job, list[int]]:
    cancelled: list[int] = []
    return Job(1, cancel=cancelled.append, fetch=fetch, explain=explanation), cancelled


def test_a_result_that_cannot_be_fetched_is_the_jobs_error() -> None:
    def fetch(end: Done | Failed) -> None:
        raise DataError("lost")

    job, _ = make(fetch)
    job.advance(DONE)
    assert isinstance(job.exception(), DataError)


def test_a_followed_number_is_that_of_the_present_daemon_after_any_number_of_restarts() -> None:
    job, numbers = make()[0], {}
    submission = JobRequest(Submit(JobSpec(workload="w", params={})), job)
    follower = EventFollower(lambda sequence, state: None, [7])
    submission.on_answer(Accepted(7, "volatile"))
    for number in (8, 9):
        assert submission.renew(numbers) and not follower.renew(numbers)
        submission.on_answer(Accepted(number, "volatile"))
    assert follower.renew(numbers)
    assert follower.request == Events((9,))


def test_asyncio_can_await_it() -> None:
    job, _ = make()

    async def story() -> Any:
        threading.Timer(0.0, lambda: job.advance(DONE)).start()
        return await asyncio.wrap_future(job)

    assert asyncio.run(story()) == "result"


def test_a_refused_job_keeps_no_array_alive(harness: Harness, client: Client) -> None:
    x = client.empty((4, 5))
    array = weakref.ref(x)
    gc.collect()
    gc.disable()
    try:
        with pytest.raises(DataError):
            client.submit("refuse", x)
        del x

        assert harness.until(lambda: array() is None)
    finally:
        gc.enable()


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


def iterative_explanation(iterations: IterationHistory | None) -> Explanation:
    return Explanation(job=1, state="done", workload="pcg", load=9, iterations=iterations)


def running(iteration: int | None) -> Running:
    return Running(1, "iterating", iteration=iteration, residual=0.5)


def make_iterative(iterations: IterationHistory | None = None) -> Job:
    def fetch(end: Done | Failed) -> dict[str, Any]:
        return {"x": np.arange(3.0)}

    return job_with(fetch, lambda job, seconds: iterative_explanation(iterations))


def job_with(
    fetch: Callable[[Done | Failed], Any], explain: Callable[[int, float | None], Explanation]
) -> Job:
    def cancel(job: int) -> None:
        pass

    return Job(1, cancel=cancel, fetch=fetch, explain=explain)


def test_the_result_has_outputs_by_name_and_how_it_went() -> None:
    job = make_iterative()
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
    """A job whose iterative_explanation can be had once."""
    history = IterationHistory(devices=("cpu0",), spans=(span(1), span(2)))

    def explain(job: int, seconds: float | None) -> Explanation:
        asked.append(job)
        if len(asked) > 1:
            raise UsageError("closed")
        return iterative_explanation(history)

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
    job = make_iterative()
    seen: list[int | None] = []
    job.add_progress_callback(lambda state: seen.append(state.iteration))

    for state in (Queued(1, 0), running(None), running(2), running(2), running(5)):
        job.advance(state)
    job.advance(Done(1, REPORT))

    assert seen == [2, 5]
