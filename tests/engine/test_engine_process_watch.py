"""Signs of life of a device process, on a clock that only the test moves."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from clock_loop import ClockLoop

from hetsched.engine.deadlines import DEFAULT_DEADLINES
from hetsched.engine.processes import process_watch
from hetsched.engine.processes.process_watch import ProcessWatch
from hetsched.transport.device_messages import CommandBatch, Fence, Fill, Ping, Prepare, Release

FILL = Fill(job=1, device=0, array="x", first=0, count=1, seed=0)
DEADLINES = replace(DEFAULT_DEADLINES, start=20.0, chunk=30.0, stop=60.0)


def prepare(device: int) -> Prepare:
    return Prepare(job=1, device=device, workload="w", params=b"", variant="v", arrays=(), chunk=1)


class Watched:
    """A watch of a process that answers nothing; `reasons` to kill it."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.loop, self.reasons = ClockLoop(), list[str]()
        self.ticks, self.sent = 7, list[Any]()
        patch.setattr(process_watch, "time", SimpleNamespace(monotonic=lambda: self.loop.now))
        process = SimpleNamespace(processor_ticks=lambda: self.ticks, send=self.sent.append)
        self.watch = ProcessWatch(
            cast(Any, process), cast(Any, self.loop), DEADLINES, self.reasons.append
        )


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Watched:
    return Watched(monkeypatch)


def test_a_hello_is_waited_for(watched: Watched) -> None:
    watched.loop.pass_time(19)
    assert watched.reasons == []

    watched.loop.pass_time(2)

    assert watched.reasons == ["its devices weren't open after 20 s (deadlines.start)"]


def test_an_idle_process_may_be_silent(watched: Watched) -> None:
    watched.watch.on_hello()

    watched.loop.pass_time(1000)

    assert (watched.reasons, watched.sent) == ([], [])


def test_a_process_that_answers_nothing_is_pinged_and_then_overdue(watched: Watched) -> None:
    watched.watch.on_hello()
    watched.watch.on_sent(FILL)

    watched.loop.pass_time(29)
    assert (watched.reasons, watched.sent) == ([], [Ping()])
    watched.loop.pass_time(2)

    assert watched.reasons == ["no sign of life for 30 s (deadlines.chunk)"]


def test_a_process_prepared_for_a_job_is_watched_after_its_answer(watched: Watched) -> None:
    watched.watch.on_hello()
    watched.watch.on_sent(CommandBatch((prepare(0), prepare(1))))
    watched.loop.pass_time(1)
    watched.watch.on_received()  # device 0 is prepared; then the process is stopped

    watched.loop.pass_time(31)

    assert watched.reasons == ["no sign of life for 30 s (deadlines.chunk)"]


def test_a_process_that_has_released_its_jobs_may_be_silent(watched: Watched) -> None:
    watched.watch.on_hello()
    watched.watch.on_sent(CommandBatch((prepare(0), prepare(1))))
    watched.watch.on_sent(Release(1, 0))
    watched.watch.on_sent(Fence(1, 1))
    watched.watch.on_received()

    watched.loop.pass_time(1000)

    assert (watched.reasons, watched.sent) == ([], [])


def test_a_process_that_answers_pings_may_take_its_time(watched: Watched) -> None:
    watched.watch.on_hello()
    for _ in range(20):
        watched.watch.on_sent(FILL)
        watched.loop.pass_time(20)
        watched.watch.on_received()

    assert watched.reasons == []


def test_a_process_that_computes_without_answering_is_left_alone(watched: Watched) -> None:
    watched.watch.on_hello()
    watched.watch.on_sent(FILL)
    for _ in range(20):
        watched.loop.pass_time(10)
        watched.ticks += 1

    assert watched.reasons == []
    watched.loop.pass_time(60)
    assert len(watched.reasons) == 1


def test_a_killed_process_is_stuck_if_it_does_not_end(watched: Watched) -> None:
    stuck = list[str]()
    watched.watch.on_sent(FILL)
    watched.watch.expect_end(lambda: stuck.append("stuck"))

    watched.loop.pass_time(100)

    assert (stuck, watched.reasons) == (["stuck"], [])


def test_a_closed_watch_calls_nothing(watched: Watched) -> None:
    watched.watch.on_sent(FILL)
    watched.watch.close()

    watched.loop.pass_time(100)

    assert watched.reasons == []
