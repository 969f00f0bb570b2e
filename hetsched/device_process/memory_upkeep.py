"""When a device releases the memory that it keeps between jobs: in time, or under pressure."""

from __future__ import annotations

import math

from hetsched.devices.base import Device, MemoryKeeper

WARM_SECONDS = 60.0
"""How long an idle device keeps memory, unless configured."""
CHECK_SECONDS = 1.0
"""Between two looks at how much memory other processes need. Arbitrary."""


class MemoryUpkeep:
    """The upkeep of one device, on its thread; does nothing for one that keeps no memory.

    Parameters
    ----------
    warm_for : float, seconds
        How long an idle device keeps memory for the next job.
    """

    def __init__(self, device: Device, warm_for: float = WARM_SECONDS) -> None:
        self._keeper = device if isinstance(device, MemoryKeeper) else None
        self._warm_for = warm_for
        self._idle_since: float | None = None
        self._retry_at = -math.inf
        """No earlier than then is memory released again that couldn't be, or not all of it."""

    @property
    def is_needed(self) -> bool:
        """Whether the device may keep memory."""
        return self._keeper is not None

    def on_busy(self) -> None:
        """Note that the device has something to do."""
        self._idle_since = None
        self._retry_at = -math.inf

    def seconds_to_check(self, now: float) -> float | None:
        """Return how long an idle device may sleep before `check`; None: for any time."""
        if self._keeper is None or not self._keeper.keeps_memory():
            return None
        if self._idle_since is None:
            self._idle_since = now
        return min(CHECK_SECONDS, max(0.0, self._due(self._idle_since) - now))

    def check(self, now: float) -> bool:
        """Release the memory if it is time; return whether it was."""
        if self._keeper is None or self._idle_since is None:
            return False
        if now < self._due(self._idle_since) and not self._keeper.is_memory_short():
            return False
        self._retry_at = now + CHECK_SECONDS
        self._keeper.release_memory()
        return True

    def _due(self, idle_since: float) -> float:
        return max(idle_since + self._warm_for, self._retry_at)

    def usable_memory(self) -> int | None:
        """Return the bytes that a job may use now; None: as the device was described."""
        return None if self._keeper is None else self._keeper.usable_memory()

    def forget_host_memory(self) -> None:
        """Drop what refers to host memory that nothing else uses."""
        if self._keeper is not None:
            self._keeper.forget_host_memory()
