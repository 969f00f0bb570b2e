"""The devices of a fleet: what they are, and why others can't be used. Pure."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from hetsched.device import DeviceInfo

MAX_SHORTAGE_BYTES = 64 << 20
"""A reading that is lower by less changes nothing: the device's reserve is larger."""
MAX_UNUSED_FRACTION = 1 / 16
"""A reading that is higher by less changes nothing: with each change, all plans are dropped."""


def steady_memory(previous: int | None, reading: int) -> int:
    """Return the bytes to plan with: `previous`, unless `reading` is clearly different."""
    if previous is None:
        return reading
    most = previous + max(MAX_SHORTAGE_BYTES, int(MAX_UNUSED_FRACTION * previous))
    return previous if previous - MAX_SHORTAGE_BYTES <= reading <= most else reading


class FleetDevices:
    """All devices that processes have or had, in order.

    Attributes
    ----------
    infos : tuple of DeviceInfo
        Those that are or may become ready.
    absent : dict
        Unusable device or kind -> reason.
    """

    def __init__(self, absent: dict[str, str]) -> None:
        self.infos: tuple[DeviceInfo, ...] = ()
        self.absent = dict(absent)
        self._probed_absent = set(absent)
        self._infos: dict[str, DeviceInfo] = {}
        self._abandoned: set[str] = set()

    def __getitem__(self, device: str) -> DeviceInfo:
        """Return the description of a device, even if it is no longer usable."""
        return self._infos[device]

    def describe(self, infos: Iterable[DeviceInfo]) -> None:
        """Add devices, or replace their descriptions."""
        self._infos.update((info.name, info) for info in infos)
        self._update()

    def set_memory(self, device: str, nbytes: int) -> None:
        """Change the memory that jobs may use."""
        self.describe([msgspec.structs.replace(self._infos[device], memory=nbytes)])

    def any_remaining(self, devices: Iterable[str]) -> bool:
        """Return whether any of these devices is or may become ready."""
        return not self._abandoned.issuperset(devices)

    def on_probed(self, absent: dict[str, str]) -> None:
        """Replace the devices that were missing at the last probe."""
        for name in self._probed_absent - absent.keys():
            self.absent.pop(name, None)
        self._probed_absent = set(absent)
        self.absent.update(absent)

    def abandon(self, devices: Iterable[str], reason: str) -> None:
        """Use these devices no longer."""
        for name in devices:
            self.absent[name] = reason
            self._abandoned.add(name)
        self._update()

    def readmit(self, devices: Iterable[str]) -> None:
        """Use these devices again."""
        for name in devices:
            self.absent.pop(name, None)
            self._abandoned.discard(name)
        self._update()

    def _update(self) -> None:
        usable = (info for name, info in self._infos.items() if name not in self._abandoned)
        self.infos = tuple(usable)
