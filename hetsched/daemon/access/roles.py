"""Who may do what: one table of roles per request, and the one function that applies it.

A daemon serves the user that it runs as. Root may look and stop jobs, but not submit: a job runs,
and writes its files, as the daemon's user. Everyone else may do nothing.
"""

from __future__ import annotations

from enum import Enum

from hetsched.errors import NotPermitted
from hetsched.transport import messages

ROOT_UID = 0


class Role(Enum):
    """What a peer is to the daemon."""

    OWNER = "the daemon's user"
    ROOT = "root"
    STRANGER = "another user"


_OWNER = frozenset({Role.OWNER})
_OWNER_AND_ROOT = frozenset({Role.OWNER, Role.ROOT})

PERMITTED: dict[type, frozenset[Role]] = {
    messages.Hello: _OWNER_AND_ROOT,
    messages.Allocate: _OWNER,
    messages.Map: _OWNER,
    messages.Drop: _OWNER,
    messages.Adopt: _OWNER,
    messages.Ping: _OWNER_AND_ROOT,
    messages.Submit: _OWNER,
    messages.Status: _OWNER_AND_ROOT,
    messages.Show: _OWNER_AND_ROOT,
    messages.Follow: _OWNER_AND_ROOT,
    messages.Cancel: _OWNER_AND_ROOT,
    messages.CancelAll: _OWNER_AND_ROOT,
    messages.Hold: _OWNER_AND_ROOT,
    messages.Release: _OWNER_AND_ROOT,
    messages.Prioritize: _OWNER_AND_ROOT,
    messages.Retry: _OWNER,
    messages.History: _OWNER_AND_ROOT,
    messages.Clean: _OWNER_AND_ROOT,
    messages.Drain: _OWNER_AND_ROOT,
    messages.Events: _OWNER_AND_ROOT,
    messages.Explain: _OWNER_AND_ROOT,
    messages.Devices: _OWNER_AND_ROOT,
    messages.Metrics: _OWNER_AND_ROOT,
    messages.Overview: _OWNER_AND_ROOT,
}
"""Request -> the roles that may make it. One that isn't listed is refused to everyone."""


def role_of(uid: int, daemon_uid: int) -> Role:
    """Return the role of a peer's `uid`, which comes from the kernel."""
    if uid == daemon_uid:
        return Role.OWNER
    return Role.ROOT if uid == ROOT_UID else Role.STRANGER


def require_permission(request_type: type, uid: int, daemon_uid: int) -> None:
    """Raise NotPermitted unless `uid` may make requests of `request_type`."""
    role = role_of(uid, daemon_uid)
    if role not in PERMITTED.get(request_type, frozenset()):
        raise NotPermitted(
            f"{request_type.__name__.lower()}: not permitted to {role.value} (uid {uid});"
            f" this daemon serves uid {daemon_uid}"
        )
