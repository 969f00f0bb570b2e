from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from typing import Any

import pytest
from daemon_harness import Harness

from hetsched.client.client import Client
from hetsched.client.job import Job
from hetsched.device import ChunkTimeline, Timeline
from hetsched.errors import DataError, ErrorRecord, TryAgain
from hetsched.explain import DeviceExplanation, Explanation
from hetsched.job import Done, Failed, JobReport


def report(state: str) -> JobReport:
    return JobReport(job=1, state=state, workload="w", load=1)


LINE = Timeline(1.0, (ChunkTimeline(1, None, (0.0, 1.0), None),))
DONE = Done(1, report("done"))


def explanation(job: int, seconds: float | None = None) -> Explanation:
    ran = DeviceExplanation(device="cpu0", kind="cpu", variant="v", planned=1, timeline=LINE)
    idle = DeviceExplanation(device="cpu1", kind="cpu", variant="v", planned=0)
    return Explanation(job=job, state="done", workload="w", load=1, devices=(ran, idle))


def test_a_job_is_explained_by_whoever_knows() -> None:
    job, _ = make()
    assert job.explain() == explanation(1)
    assert job.timeline() == {"cpu0": LINE}


def failed(code: int) -> Failed:
    return Failed(1, report("failed"), ErrorRecord(code, "because"))


def make(fetch: Any = lambda end: "result") -> tuple[Job, list[int]]:
    cancelled: list[int] = []
    return Job(1, cancel=cancelled.append, fetch=fetch, explain=explanation), cancelled


def test_a_result_that_cannot_be_fetched_is_the_jobs_error() -> None:
    def fetch(end: Done | Failed) -> None:
        raise DataError("lost")

    job, _ = make(fetch)
    job.advance(DONE)
    assert isinstance(job.exception(), DataError)


def test_nothing_happens_after_the_end() -> None:
    job, _ = make()
    job.advance(DONE)
    job.advance(failed(1))
    job.lost(TryAgain("gone"))
    assert job.result() == "result"


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
