"""Devices: the daemon's devices, and why others are missing."""

from __future__ import annotations

from hetsched.client.connection import Connection
from hetsched.client.handlers import expect
from hetsched.device import DeviceInfo
from hetsched.transport.messages import DeviceList, Devices


def devices(connection: Connection) -> tuple[tuple[DeviceInfo, ...], dict[str, str]]:
    answer = expect(DeviceList, connection.ask(Devices()))
    return answer.devices, answer.absent
