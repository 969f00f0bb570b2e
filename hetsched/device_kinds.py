"""The table of device kinds: one line and one package per kind.

Owns the properties of a kind that the pure layers and the command line use. Its behaviour (finding
its devices, opening them) is in its package; see `hetsched.devices.probe`.
"""

from __future__ import annotations

import msgspec

from hetsched.errors import InternalError


class DeviceKind(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of device."""

    name: str  # `DeviceInfo.kind`; also the `kind` in reports
    config_name: str  # `kind` in a configuration
    group: str  # Of all its devices in ``--devices``; with a number, the default name of one
    package: str  # Whose modules ``probe`` and ``device`` implement the kind
    variant_kind: str  # Of the variants that its devices run
    # Devices are CPU cores or teams of them. Equal ones share models, and driving other devices
    # may take processor time from them.
    is_core: bool = False
    # A device may take a core away from the CPU, so this kind is probed before the others.
    reserves_cores: bool = False
    # The configuration says what a device's operations cost; no variant makes it faster.
    is_modelled: bool = False
    # A machine may lack such devices: naming one is then Unavailable, not a usage error.
    can_be_missing: bool = False
    # Other processes use the memory of its devices too, so they are asked what is free.
    shares_memory: bool = False
    runs_in_threads: bool = False  # A device's loop may run in a thread of the engine's process
    # Without a link it can compute a small job beside a larger one, as a `ShareableDevice`.
    runs_side_jobs: bool = False
    has_link: bool | None = None  # Memory of its own; None: as configured
    own_keys: tuple[str, ...] = ()  # Of its tables, beside the keys that all kinds have


_CPU = DeviceKind(
    name="cpu",
    config_name="cpu",
    group="cpu",
    package="hetsched.devices.cpu",
    variant_kind="cpu",
    is_core=True,
    runs_in_threads=True,
    runs_side_jobs=True,
    has_link=False,
    own_keys=("team", "hardware_threads"),
)
_CUDA = DeviceKind(
    name="cuda",
    config_name="gpu",
    group="gpu",
    package="hetsched.devices.cuda",
    variant_kind="cuda",
    can_be_missing=True,
    shares_memory=True,
    has_link=True,
    own_keys=("memory",),
)
_OPENCL = DeviceKind(
    name="opencl",
    config_name="opencl",
    group="ocl",
    package="hetsched.devices.opencl",
    variant_kind="opencl",
    can_be_missing=True,
    own_keys=("memory", "on_cpu", "host_memory", "engines"),
)
_EMULATED = DeviceKind(
    name="emulated",
    config_name="emulated",
    group="emu",
    package="hetsched.devices.emulated",
    variant_kind="cpu",  # it really computes, on a core
    reserves_cores=True,
    is_modelled=True,
    runs_in_threads=True,
    runs_side_jobs=True,
)

DEVICE_KINDS = {kind.name: kind for kind in (_CPU, _CUDA, _OPENCL, _EMULATED)}
"""Kinds by name, in the order in which tables list their devices."""


def device_kind(name: str) -> DeviceKind:
    """Return the kind called `name` in a DeviceInfo. Raises InternalError if unregistered."""
    try:
        return DEVICE_KINDS[name]
    except KeyError:
        raise InternalError(f"no device kind {name!r} in hetsched.device_kinds") from None


def configured_kind(config_name: str) -> DeviceKind | None:
    """Return the kind that configurations call `config_name`."""
    matches = (kind for kind in DEVICE_KINDS.values() if kind.config_name == config_name)
    return next(matches, None)


def config_names() -> list[str]:
    """Return the values that `kind` may have in a configuration."""
    return [kind.config_name for kind in DEVICE_KINDS.values()]


def kind_of_group(word: str) -> DeviceKind | None:
    """Return the kind whose group of devices is called `word`, if any."""
    kinds = DEVICE_KINDS.values()
    return next((kind for kind in kinds if word in (kind.group, kind.config_name)), None)


def group_names() -> list[str]:
    """Return the names of all groups of devices."""
    names = [name for kind in DEVICE_KINDS.values() for name in (kind.group, kind.config_name)]
    return list(dict.fromkeys(names))
