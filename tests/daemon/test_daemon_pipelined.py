"""Requests that follow each other faster than the journal's disk."""

from __future__ import annotations

from hetsched.job import Failed
from hetsched.transport.messages import Cancel, State, Submit
from robustness.daemon import daemon
from robustness.raw_client import RawClient
from robustness.submissions import CONFIG, SPEC


def test_cancelling_all_jobs_includes_those_that_are_still_being_accepted() -> None:
    with daemon(CONFIG) as served, RawClient(served.folder) as client:
        followed = {client.send(Submit(SPEC, follow=True)) for _ in range(20)}
        client.send(Cancel(None))
        while followed:
            reply = client.receive()
            if isinstance(reply.answer, State) and isinstance(reply.answer.state, Failed):
                assert reply.answer.state.error.code == 130
                followed.remove(reply.number)
