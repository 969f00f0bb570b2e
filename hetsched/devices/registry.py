"""Loads the package of a device kind. To add a kind, write its package and register it.

The package of a kind has two modules with the functions of the protocols below: ``probe`` is
imported where devices are probed, ``device`` only in a device process. The kind itself is one
entry of `hetsched.device_kinds.DEVICE_KINDS`. Vendor libraries are imported inside the functions.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from hetsched.config import DeviceConfig
from hetsched.device import DeviceInfo
from hetsched.device_kinds import DeviceKind, device_kind
from hetsched.devices.base import Device
from hetsched.devices.core_pool import CorePool
from hetsched.devices.process_spec import Probe

ConfigTable = tuple[int, DeviceConfig]
"""A ``[[device]]`` table and its index in the configuration."""


class ProbeModule(Protocol):
    """The module ``probe`` of a kind's package."""

    def probe(self, tables: Sequence[ConfigTable], pool: CorePool) -> Probe:
        """Find the devices that `tables`, all those of this kind, ask for.

        Opens nothing. Cores dedicated to a device are reserved in `pool`.

        Raises
        ------
        ConfigError
            A table asks for something impossible on this machine.
        Unavailable
            A device that isn't optional is missing.
        """

    def throttle_reasons(self, info: DeviceInfo) -> tuple[str, ...]:
        """Why the device runs slower than it could right now; () where it doesn't or can't say."""


class DeviceModule(Protocol):
    """The module ``device`` of a kind's package."""

    def open_device(self, info: DeviceInfo, config: DeviceConfig) -> Device:
        """Open the device; called on the thread that will drive it. Raises Unavailable."""


def probe_module(kind: DeviceKind) -> ProbeModule:
    """Import the module that finds devices of `kind`."""
    module: Any = importlib.import_module(f"{kind.package}.probe")
    return module  # type: ignore[no-any-return]


def device_opener(package: str, config: DeviceConfig) -> Callable[[DeviceInfo], Device]:
    """Import the module that opens devices of a kind; return a function that opens one."""
    module: Any = importlib.import_module(f"{package}.device")
    kind: DeviceModule = module
    return lambda info: kind.open_device(info, config)


def throttle_reasons(info: DeviceInfo) -> tuple[str, ...]:
    """Why the device runs slower than it could right now; () where it doesn't or can't say."""
    return probe_module(device_kind(info.kind)).throttle_reasons(info)
