"""Limits of device memory, lowered where a device ran out of it."""

from __future__ import annotations

from collections.abc import Iterable


class MemoryLimits:
    """Bytes to plan with, of devices that had less memory than they reported."""

    def __init__(self) -> None:
        self._limits: dict[str, int] = {}

    def get(self, device: str) -> int | None:
        """Return the limit of `device`; None: what it reports."""
        return self._limits.get(device)

    def lower(self, device: str, failed_bytes: int) -> None:
        """Halve the memory of `device`, which couldn't set aside `failed_bytes`."""
        self._limits[device] = max(1, failed_bytes // 2)

    def raise_after_success(self, devices: Iterable[str]) -> None:
        """Double the limits of these devices: the memory that was missing may be free again."""
        for device in devices:
            if device in self._limits:
                self._limits[device] *= 2
