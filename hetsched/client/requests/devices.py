"""Devices: the daemon's devices, and why others are missing."""

from __future__ import annotations

from hetsched.client.connection import Connection
from hetsched.client.handlers import expect
from hetsched.transport.messages import DeviceList, Devices


def devices(
    connection: Connection,
    *,
    probe: bool = False,
    enable: tuple[str, ...] = (),
    disable: tuple[str, ...] = (),
) -> DeviceList:
    return expect(DeviceList, connection.ask(Devices(probe, enable, disable)))
