"""Opening the device never ends."""

from __future__ import annotations

import signal
from typing import NoReturn

from hetsched.config import DeviceConfig
from hetsched.device import DeviceInfo


def open_device(info: DeviceInfo, config: DeviceConfig) -> NoReturn:
    while True:
        signal.pause()
