"""Hello: the first message of a session; answered by the token for every later one."""

from __future__ import annotations

from hetsched.daemon.commands import Command, Tell
from hetsched.daemon.ledger import Ledger, Session
from hetsched.errors import ProtocolError
from hetsched.transport.messages import PROTOCOL, Hello, Welcome


def handle(ledger: Ledger, session: Session, request: Hello) -> list[Command]:
    """Raises ProtocolError."""
    me = ledger.daemon
    if request.protocol != PROTOCOL:
        raise ProtocolError(
            f"client {request.version} speaks protocol {request.protocol}, the daemon"
            f" {me.version} (pid {me.pid}) speaks {PROTOCOL}; install the same version for both"
        )
    session.greeted = True
    ledger.by_token[session.token] = session
    return [Tell(session.id, Welcome(PROTOCOL, me.version, session.token, me.endpoint, me.pid))]
