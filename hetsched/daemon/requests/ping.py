"""Ping: whether the daemon is alive, and since when."""

from __future__ import annotations

from hetsched.daemon.commands import Command
from hetsched.daemon.ledger import Ledger
from hetsched.daemon.records import Requester
from hetsched.transport.messages import Ping, Pong


def handle(ledger: Ledger, requester: Requester, request: Ping, now: float) -> list[Command]:
    """Answer with the daemon's pid, version and uptime."""
    daemon = ledger.daemon
    return [requester.reply(Pong(daemon.pid, daemon.version, now - daemon.started))]
