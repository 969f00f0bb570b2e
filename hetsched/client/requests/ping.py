"""Ping: whether the daemon is alive, and since when."""

from __future__ import annotations

from hetsched.client.connection import Connection
from hetsched.client.handlers import expect
from hetsched.transport.messages import Ping, Pong


def ping(connection: Connection) -> Pong:
    return expect(Pong, connection.ask(Ping()))
