"""The daemon's sockets against clients that misbehave; an engine that only doubles."""

from __future__ import annotations

import contextlib
import functools
import socket
from concurrent.futures import CancelledError
from pathlib import Path

import daemon_harness
import numpy as np
import pytest
import zmq
from daemon_harness import Harness, RawClient

from hetsched.client.client import Client
from hetsched.client.job import Job
from hetsched.daemon.sessions import MAX_SESSION_REQUEST
from hetsched.errors import ErrorRecord, InternalError
from hetsched.job import Done, JobReport, JobState, Running
from hetsched.jobs.table import Limits
from hetsched.transport.messages import (
    MAX_FRAME,
    Map,
    Ping,
    Refused,
    Reply,
    State,
    encode,
)


@pytest.mark.parametrize(
    "payload",
    [b"\xc1", b"\x00" * (MAX_SESSION_REQUEST + 1), encode(Map(1)), encode({"type": "hello"})],
    ids=["garbage", "oversized", "before hello", "half a hello"],
)
def test_a_session_with_an_invalid_message_gets_an_error_and_is_closed(
    harness: Harness, payload: bytes
) -> None:
    with contextlib.closing(RawClient(harness, is_silent=True)) as raw:
        raw.session.send(payload)
        answer = raw.session_answer()
        assert isinstance(answer, Refused) and answer.error.code == 76
        assert raw.session_answer() is None
    assert harness.serves()


def test_a_client_that_asks_and_never_reads_loses_its_session(
    harness: Harness, raw: RawClient
) -> None:
    raw.session.setblocking(False)
    with pytest.raises(OSError, match=r"Broken pipe|reset"):
        for _ in range(100_000):
            try:
                raw.session.send(encode(Map(1)), socket.MSG_NOSIGNAL)
            except BlockingIOError:
                harness.ask(lambda: None)
    assert harness.serves()


def test_text_that_cannot_be_encoded_is_escaped_in_every_answer(harness: Harness) -> None:
    """A plug-in's text that has passed all checks costs neither its job nor other clients."""
    with Client(harness.folder, timeout=60) as client, Client(harness.folder) as other:
        states: list[JobState] = []
        job = client.submit("wait", client.empty((10,), "float32"), follow=states.append)
        harness.ask(lambda: harness.engine.progress(job.id, "\ud800\x1b[2J"))
        (line,) = other.status()
        answers = [line.state, other.show(job.id), other.overview().jobs[0].state]
        harness.ask(lambda: harness.engine.finish(job.id))
        job.result(60)
    for state in (*answers, states[-2]):
        assert isinstance(state, Running) and state.text == "\\ud800\x1b[2J"


def test_an_ended_job_is_remembered_until_its_result_is_fetched(tmp_path: Path) -> None:
    limits = Limits(fetch_for=60.0, ended_jobs=1)  # bytes: of one job
    with daemon_harness.daemon(tmp_path, limits) as harness, Client(harness.folder) as client:
        jobs = [client.submit("wait", np.full(3, float(n))) for n in range(3)]
        harness.ask(lambda: [harness.engine.finish(job.id) for job in jobs])
        assert [job.result(60)[0] for job in jobs] == [0.0, 2.0, 4.0]


def test_an_answer_that_would_be_too_long_is_shortened_or_refused(
    harness: Harness, raw: RawClient
) -> None:
    params = {"table": "x" * MAX_FRAME}
    report = JobReport(job=1, state="done", workload="w", load=1, params=params)
    answers = [State(Done(1, report)), Refused(ErrorRecord(75, "x" * MAX_FRAME))]
    raw.ask(1, Ping())
    raw.reply()
    (session,) = harness.requests.sessions

    for answer in answers:
        harness.ask(functools.partial(harness.router.send, session.route, Reply(2, answer)))
    shortened, refused = raw.reply().answer, raw.reply().answer

    assert isinstance(shortened, State)
    assert isinstance(shortened.state, Done)
    assert "left out here" in shortened.state.report.notes[0]
    assert isinstance(refused, Refused)
    assert "the limit is 1048576" in refused.error.message


def test_a_message_beyond_the_limit_costs_its_client_the_connection_alone(
    harness: Harness, raw: RawClient
) -> None:
    raw.ask(1, Ping())
    raw.reply()
    with raw.dealer.get_monitor_socket(zmq.EVENT_DISCONNECTED) as monitor:
        raw.dealer.send(bytes(MAX_FRAME + 1))
        assert monitor.poll(60_000), "the daemon has read it"
        raw.dealer.disable_monitor()
    assert harness.serves()
    raw.ask(2, Ping())
    assert raw.reply().number == 2


def broken(*given: object, **more: object) -> None:
    raise ValueError("oops")


def test_a_request_that_hits_a_bug_is_answered(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(harness.engine, "devices", broken)
    monkeypatch.setattr(harness.engine, "admit", broken)
    monkeypatch.setattr(harness.arena, "allocate", broken)
    with Client(harness.folder, timeout=60) as client:
        for ask in (client.devices, lambda: client.submit("wait"), lambda: client.empty(3)):
            with pytest.raises(InternalError, match="ValueError: oops"):
                ask()
        assert client.status() == ()


def test_the_last_replies_arrive_before_the_session_ends(tmp_path: Path) -> None:
    with daemon_harness.daemon(tmp_path) as harness:
        client = Client(harness.folder, timeout=60)
        jobs = [client.submit("wait", np.ones(3)) for _ in range(300)]
        harness.ask(
            lambda: [harness.engine.cancel(harness.engine.waiting[job.id]) for job in jobs]
        )
    assert all(cancelled(job) for job in jobs)
    client.close()


def cancelled(job: Job) -> bool:
    """Whether the job ended as the daemon said."""
    with contextlib.suppress(CancelledError):
        job.exception(60)
    return job.cancelled()
