"""Who may do what: every request for every role."""

from __future__ import annotations

from typing import get_args

import pytest

from hetsched.daemon.access.roles import PERMITTED, Role, require_permission, role_of
from hetsched.daemon.requests import BY_ENVELOPE, BY_SESSION
from hetsched.errors import NotPermitted
from hetsched.transport import messages

USER, ROOT, OTHER = 1000, 0, 1001
ALL_REQUESTS = [*get_args(messages.SessionRequest), *get_args(messages.Request)]
SUBMITTERS_ONLY = {
    messages.Retry,
    messages.Submit,
    messages.Allocate,
    messages.Map,
    messages.Drop,
    messages.Adopt,
}
"""What root may not do in another user's daemon; a new request with this rule is added here."""


def test_every_request_has_a_row_and_every_row_a_request() -> None:
    assert set(PERMITTED) == set(ALL_REQUESTS) == set(BY_SESSION) | set(BY_ENVELOPE)


@pytest.mark.parametrize("request_type", ALL_REQUESTS)
@pytest.mark.parametrize(("uid", "role"), [(USER, "owner"), (ROOT, "root"), (OTHER, "stranger")])
def test_each_role_may_do_what_the_table_says(request_type: type, uid: int, role: str) -> None:
    is_expected = {
        "owner": True,
        "root": request_type not in SUBMITTERS_ONLY,
        "stranger": False,
    }[role]
    assert may(request_type, uid, daemon_uid=USER) == is_expected


@pytest.mark.parametrize("request_type", ALL_REQUESTS)
def test_roots_own_daemon_serves_root_only(request_type: type) -> None:
    assert may(request_type, ROOT, daemon_uid=ROOT)
    assert not may(request_type, USER, daemon_uid=ROOT)


def test_a_request_without_a_row_is_refused_to_everyone() -> None:
    assert not may(object, USER, daemon_uid=USER)


@pytest.mark.parametrize("uid", [-1, 65534, 2**32 - 1])
def test_a_peer_without_a_known_uid_is_a_stranger(uid: int) -> None:
    assert role_of(uid, USER) is Role.STRANGER


def may(request_type: type, uid: int, daemon_uid: int) -> bool:
    try:
        require_permission(request_type, uid, daemon_uid)
    except NotPermitted as error:
        assert str(daemon_uid) in str(error)
        return False
    return True
