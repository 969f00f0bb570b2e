"""Devices: the engine's devices, and why others are missing."""

from __future__ import annotations

from hetsched.daemon.commands import Command, ListDevices
from hetsched.daemon.ledger import Ledger
from hetsched.daemon.records import Requester
from hetsched.transport.messages import Devices


def handle(ledger: Ledger, requester: Requester, request: Devices, now: float) -> list[Command]:
    """Have the engine list its devices, after the changes that are asked for."""
    return [
        ListDevices(
            requester.identity, requester.number, request.probe, request.enable, request.disable
        )
    ]
