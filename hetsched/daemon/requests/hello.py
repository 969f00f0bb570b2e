"""Hello: the first message of a session; the answer has the token for all later ones."""

from __future__ import annotations

from hetsched.daemon.commands import AnswerSession, Command
from hetsched.daemon.ledger import Ledger
from hetsched.daemon.records import ClientSession
from hetsched.errors import ProtocolError
from hetsched.transport.messages import PROTOCOL, Hello, Welcome


def handle(ledger: Ledger, session: ClientSession, request: Hello) -> list[Command]:
    """Greet a client. Raises ProtocolError if its version is incompatible."""
    daemon = ledger.daemon
    if request.protocol != PROTOCOL:
        raise ProtocolError(
            f"client {request.version} speaks protocol {request.protocol}, the daemon"
            f" {daemon.version} (pid {daemon.pid}) speaks {PROTOCOL};"
            " install the same version for both"
        )
    ledger.greet(session)
    welcome = Welcome(PROTOCOL, daemon.version, session.token, daemon.endpoint, daemon.pid)
    return [AnswerSession(session.id, welcome, with_socket=request.wants_socket)]
