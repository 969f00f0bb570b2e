"""Devices: what the engine found, and why something wasn't found."""

from __future__ import annotations

from hetsched.daemon.commands import Command, ListDevices
from hetsched.daemon.ledger import Asker, Ledger
from hetsched.transport.messages import Devices


def handle(ledger: Ledger, asker: Asker, request: Devices, now: float) -> list[Command]:
    return [ListDevices(asker.identity, asker.number)]
