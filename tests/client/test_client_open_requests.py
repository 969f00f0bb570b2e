"""Requests that are sent on the caller's thread: each is sent once, or left to the connection."""

from __future__ import annotations

from typing import cast

import pytest

from hetsched.client.handlers import SingleAnswer
from hetsched.client.link import Link
from hetsched.client.open_requests import OpenRequests
from hetsched.transport.messages import Ping


class FakeLink:
    """A link that takes requests, or doesn't."""

    def __init__(self, takes: bool = True) -> None:
        self.takes = takes
        self.sent: list[bytes] = []

    def send_now(self, payload: bytes) -> bool:
        self.sent += [payload] if self.takes else []
        return self.takes


def send(requests: OpenRequests, link: FakeLink, number: int = 1) -> bool:
    return requests.send(cast(Link, link), number, Ping(), SingleAnswer(), b"ping")


def resume(requests: OpenRequests, link: FakeLink) -> list[int]:
    return requests.resume(cast(Link, link))


def test_a_request_is_open_once_it_is_sent() -> None:
    requests, link = OpenRequests(), FakeLink()
    assert resume(requests, link) == []
    assert send(requests, link) and link.sent == [b"ping"] and list(requests) == [1]


def test_a_request_that_the_link_does_not_take_is_left_to_the_connection() -> None:
    requests, link = OpenRequests(), FakeLink(takes=False)
    resume(requests, link)
    assert not send(requests, link) and not requests


@pytest.mark.parametrize("stop", ["pause", "take_all"])
def test_nothing_is_sent_without_a_daemon(stop: str) -> None:
    requests, link = OpenRequests(), FakeLink()
    assert not send(requests, link)
    resume(requests, link)
    assert send(requests, link)
    getattr(requests, stop)()
    assert not send(requests, link, 2) and link.sent == [b"ping"]


def test_the_next_daemon_gets_the_open_requests_and_no_others() -> None:
    requests, first, second = OpenRequests(), FakeLink(), FakeLink()
    resume(requests, first)
    send(requests, first)
    requests.pause()
    assert resume(requests, second) == [1]
    assert not send(requests, first, 2)  # encoded for the first daemon
    assert send(requests, second, 3) and sorted(requests) == [1, 3]


def test_all_open_requests_are_taken_once() -> None:
    requests, link = OpenRequests(), FakeLink()
    resume(requests, link)
    send(requests, link)
    assert len(requests.take_all()) == 1
    assert requests.take_all() == []
