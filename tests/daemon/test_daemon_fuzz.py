"""Requests of every shape, by hypothesis: each is answered or refused, and the daemon lives on."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, get_args

import daemon_harness
import msgspec
import pytest
from daemon_harness import Harness, RawClient
from hypothesis import given
from hypothesis import strategies as st

from hetsched.transport import messages

TAGS = [msgspec.inspect.type_info(kind).tag for kind in get_args(messages.Request)]  # type: ignore[attr-defined]
FIELDS = ["job", "spec", "follow", "workload", "params", "inputs", "outputs", "type", "segment"]

leaves = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=20)
    | st.binary(max_size=20)
)
values = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(FIELDS) | st.text(max_size=5), inner, max_size=5)
    ),
    max_leaves=15,
)
requests = st.fixed_dictionaries(
    {"type": st.sampled_from(TAGS) | values}, optional=dict.fromkeys(FIELDS[:-2], values)
)


@pytest.fixture(scope="module")
def harness(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Harness]:
    with daemon_harness.daemon(tmp_path_factory.mktemp("d")) as harness:
        yield harness


@pytest.fixture(scope="module")
def raw(harness: Harness) -> Iterator[RawClient]:
    with contextlib.closing(RawClient(harness)) as client:
        yield client


@given(number=st.integers(1, 2**62) | values, request=requests | values)
def test_every_request_gets_an_answer(raw: RawClient, number: Any, request: Any) -> None:
    raw.ask(number, request)
    raw.ask(2**62 + 1, messages.Ping())
    numbers = []
    while 2**62 + 1 not in numbers:
        numbers.append(raw.reply().number)
    assert len(numbers) > 1


@given(message=requests | values)
def test_every_session_message_leaves_the_daemon_serving(harness: Harness, message: Any) -> None:
    with contextlib.closing(RawClient(harness)) as raw:
        raw.session.send(messages.encode(message))
        answer = None
        with contextlib.suppress(BrokenPipeError):
            raw.session.send(messages.encode(messages.Map(1)))
            answer = raw.session_answer()
        assert isinstance(answer, messages.Refused | messages.SegmentFd | None)
