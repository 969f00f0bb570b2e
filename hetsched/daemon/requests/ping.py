"""Ping: is the daemon alive, and since when."""

from __future__ import annotations

from hetsched.daemon.commands import Command
from hetsched.daemon.ledger import Asker, Ledger
from hetsched.transport.messages import Ping, Pong


def handle(ledger: Ledger, asker: Asker, request: Ping, now: float) -> list[Command]:
    me = ledger.daemon
    return [asker.reply(Pong(me.pid, me.version, now - me.started))]
