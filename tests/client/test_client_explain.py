"""Explanations from the daemon over real sockets; its engine can explain job 1 only."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pytest
from daemon_harness import Harness

from hetsched.client.client import Client
from hetsched.device import ChunkTimeline, Timeline
from hetsched.errors import InputMissing, UsageError
from hetsched.explain import DeviceExplanation, Explanation


def test_a_job_and_its_number_are_explained_alike(client: Client) -> None:
    job = client.submit("double")
    expected = Explanation(job=1, state="done", workload="double", load=1)

    assert job.explain() == client.explain(1) == client.job(1).explain() == expected
    assert job.timeline() == {}


def test_jobs_that_nobody_knows_are_refused(client: Client) -> None:
    with pytest.raises(InputMissing, match=r"no job 5; there are no jobs yet"):
        client.explain(5)


def test_what_the_engine_refuses_arrives(client: Client) -> None:
    client.submit("double")
    second = client.submit("double")

    with pytest.raises(InputMissing, match="job 2 ended too long ago"):
        second.explain()


def test_a_job_of_very_many_chunks_arrives_thinned_out(
    client: Client, harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    span = (0.123456, 1.654321)
    line = Timeline(1.7, (ChunkTimeline(1, span, span, span),) * 100_000)
    one = DeviceExplanation(
        device="gpu0", kind="cuda", variant="v", planned=1, chunks=((1, 1), (1, 2)) * 50_000,
        plan=line, timeline=line,
    )  # fmt: skip
    long = Explanation(job=1, state="done", workload="double", load=1, devices=(one,))
    monkeypatch.setattr(harness.engine, "explain", lambda number, then: then(long, None))

    found = client.submit("double").explain()

    assert any("at a time" in note for note in found.notes)
    (device,) = found.devices
    assert device.timeline is not None
    assert sum(chunk.units for chunk in device.timeline.chunks) == 100_000


def test_a_callback_is_told_that_it_would_wait_for_itself(client: Client) -> None:
    found: Future[Any] = Future()

    def called(state: object) -> None:
        if not found.done():
            try:
                found.set_result(client.explain(1))
            except Exception as error:
                found.set_exception(error)

    client.submit("wait", follow=called)
    with pytest.raises(UsageError, match="callback"):
        found.result(60)
