"""The sign of life for systemd's watchdog.

It comes from the event loop itself, never from another thread: a loop that is stuck must be
noticed. A stuck device process isn't: the engine replaces it.
"""

from __future__ import annotations

from hetsched.daemon.service.systemd import ServiceManager
from hetsched.transport.loop import Loop


class Watchdog:
    """Sends WATCHDOG=1 twice per interval, if systemd watches this process."""

    def __init__(self, loop: Loop, manager: ServiceManager) -> None:
        self._loop = loop
        self._manager = manager
        self._interval = manager.watchdog_interval

    def start(self) -> None:
        """Send one now, and go on until the loop ends."""
        if self._interval is not None:
            self._manager.notify("WATCHDOG=1")
            self._loop.call_later(self._interval, self.start)
