"""Replies to clients that don't read: bounded in bytes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hetsched.daemon.limits.log_limiter import LOG_INTERVAL, LogLimiter
from hetsched.daemon.limits.reply_backlog import MESSAGE_OVERHEAD, ReplyBacklog


def test_replies_wait_in_order() -> None:
    backlog = ReplyBacklog(1000, 1000)
    backlog.add(b"a", b"1")
    backlog.add(b"a", b"2")
    assert backlog.first(b"a") == b"1"
    backlog.drop_first(b"a")
    assert backlog.first(b"a") == b"2"
    backlog.drop_first(b"a")
    assert b"a" not in backlog and backlog.nbytes == 0


def test_a_client_over_its_limit_is_named() -> None:
    backlog = ReplyBacklog(1000, 10_000)
    assert backlog.add(b"a", bytes(500)) == []
    assert backlog.add(b"a", bytes(500)) == [b"a"]
    assert backlog.forget(b"a") == 2


def test_over_the_total_limit_the_client_with_the_most_bytes_is_named() -> None:
    backlog = ReplyBacklog(1000, 1500)
    backlog.add(b"small", bytes(100))
    assert backlog.add(b"large", bytes(800)) == []
    assert backlog.add(b"new", bytes(500)) == [b"large"]


def test_tiny_replies_count_too() -> None:
    backlog = ReplyBacklog(100 * MESSAGE_OVERHEAD, 1 << 30)
    overfull = [client for _ in range(101) for client in backlog.add(b"a", b"")]
    assert overfull == [b"a"]


@given(st.lists(st.tuples(st.sampled_from([b"a", b"b", b"c"]), st.integers(0, 900))))
def test_the_bytes_never_exceed_the_limit_and_add_up(additions: list[tuple[bytes, int]]) -> None:
    backlog = ReplyBacklog(1500, 3000)
    for identity, size in additions:
        for client in backlog.add(identity, bytes(size)):
            backlog.forget(client)
        assert backlog.nbytes <= 3000
    for client in backlog.clients():
        backlog.forget(client)
    assert (backlog.nbytes, len(backlog)) == (0, 0)


def test_a_kind_of_event_is_logged_once_per_interval_with_a_count() -> None:
    limiter = LogLimiter()
    assert [limiter.admit(now) for now in (0.0, 1.0, 2.0)] == ["", None, None]
    assert limiter.admit(LOG_INTERVAL) == " (2 more before)"
    assert limiter.admit(2 * LOG_INTERVAL) == ""
