"""The running device processes of a daemon."""

from __future__ import annotations

import contextlib
import time

import psutil

_NAME = "hetsched "
"""Before the name of its device: how a device process calls itself."""


def device_processes(daemon_pid: int, device: str = "") -> list[psutil.Process]:
    """Wait until there are any of devices whose name begins with `device`, and return them."""
    while True:
        processes = []
        for child in psutil.Process(daemon_pid).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                if child.name().startswith(_NAME + device):
                    processes.append(child)
        if processes:
            return processes
        time.sleep(0.01)
