"""Sets up emulated devices: one device process each, pinned to a reserved core if configured."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import msgspec

from hetsched.config import Cost, DeviceConfig
from hetsched.device import DeviceInfo
from hetsched.devices.probe import CorePool, Probe, ProcessSpec, device_name
from hetsched.errors import ConfigError
from hetsched.machine_limits import processor

_PACKAGE = "hetsched.devices.emulated"


def probe(tables: Sequence[tuple[int, DeviceConfig]], pool: CorePool) -> Probe:
    """Return all emulated devices; those with `core` reserve one core each."""
    processes: list[ProcessSpec] = []
    for index, config in tables:
        for number in range(config.count or 1):  # copies are pinned to consecutive cores
            pinned = () if config.core is None else (_reserve(index, config.core + number, pool),)
            copy = msgspec.structs.replace(config, seed=config.seed + number)
            info = _info(device_name(config, f"emu{len(processes)}", number), copy, pinned)
            process = ProcessSpec(package=_PACKAGE, device=info, config=copy, forks=True)
            processes.append(process)
    return Probe(tuple(processes))


def _reserve(index: int, number: int, pool: CorePool) -> int:
    if not 0 <= number < pool.usable:
        raise ConfigError(
            f"device[{index}].core: no core {number}; available here: 0 to {pool.usable - 1}"
        )
    return pool.reserve(number)


def _info(name: str, config: DeviceConfig, pinned: tuple[int, ...]) -> DeviceInfo:
    """Describe a device; `identity` has a hash of the costs, to keep their models apart."""
    phases = config.compute, config.h2d, config.d2h
    costs = [*phases, config.engines, config.duplex, config.stalls]
    digest = hashlib.blake2b(msgspec.json.encode(costs), digest_size=4).hexdigest()
    virtual = config.clock == "virtual"
    return DeviceInfo(
        name=name,
        kind="emulated",
        identity=f"emulated {'virtual ' if virtual else ''}{_speed(config.compute)} {digest}",
        link=config.link,
        memory=config.memory_bytes() if config.link else None,
        engines=config.engines if config.link else 0,
        cores=pinned,
        clock="virtual" if virtual else "wall",
        details={} if virtual else {"processor": processor()},
    )


def _speed(compute: Cost | None) -> str:
    if compute is not None and compute.points:
        return f"table of {len(compute.points)}"
    return (compute.rate or f"{compute.unit} a unit") if compute else ""
