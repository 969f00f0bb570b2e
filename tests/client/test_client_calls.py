"""What a short job costs the client: few Python calls, and no look at sockets without replies.

Between jobs caches get cold, and then each Python call takes about a microsecond.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

import numpy as np
import pytest
from daemon_harness import Harness

from hetsched.client.client import Client
from hetsched.client.link import Link

MAX_CALLS = 55
"""Python calls from `submit` until the request is sent: 47, some more in other versions."""


def calls_until_sent(client: Client, x: np.ndarray, out: np.ndarray) -> list[str]:
    names: list[str] = []

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            names.append(frame.f_code.co_name)

    sys.setprofile(note)
    try:
        job = client.submit("double", x, out=out)
    finally:
        sys.setprofile(None)
    job.result(60)
    return names[: names.index("send_now")]


def test_few_calls_precede_the_request_of_a_job_on_shared_arrays(client: Client) -> None:
    x, out = client.empty(8, "float32"), client.empty(8, "float32")
    x[:] = 1
    assert client.submit("double", x, out=out).result(60) is out
    assert len(calls_until_sent(client, x, out)) <= MAX_CALLS


def test_a_reply_past_zeromq_leads_to_no_look_at_zeromq(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[threading.Thread] = []

    def zmq_replies(link: Link) -> Iterator[bytes]:
        looks.append(threading.current_thread())
        return iter(())

    monkeypatch.setattr(Link, "zmq_replies", zmq_replies)
    assert client.submit("double", np.ones(3)).result(60).tolist() == [2] * 3
    assert looks == []


def test_replies_arrive_both_ways_at_once(harness: Harness, client: Client) -> None:
    link = client._connection._link
    assert link is not None
    jobs = [client.submit("double", np.full(3, 1.0))]
    link.send_now = lambda payload: False  # type: ignore[method-assign]
    jobs.append(client.submit("double", np.full(3, 2.0)))
    del link.send_now
    jobs.append(client.submit("double", np.full(3, 3.0)))
    assert [job.result(60)[0] for job in jobs] == [2, 4, 6]
