"""Finds the devices of a configuration on this machine, and the processes that host them.

Opens nothing. Each kind finds its own devices; see `hetsched.devices.registry`.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from hetsched.config import Config
from hetsched.device_kinds import DEVICE_KINDS, DeviceKind, configured_kind
from hetsched.devices.core_pool import CorePool, core_pool
from hetsched.devices.process_spec import Probe, ProcessSpec
from hetsched.devices.registry import probe_module
from hetsched.errors import ConfigError
from hetsched.units import parse_time


def probe(config: Config) -> Probe:
    """Find the devices that `config` asks for. Takes tens of milliseconds.

    Raises
    ------
    ConfigError
        It asks for a core that this machine lacks, or gives two devices the same name.
    Unavailable
        A device that isn't optional is missing.
    """
    pool = core_pool()
    probes = {kind.name: _probe_kind(kind, config, pool) for kind in _probe_order()}
    ordered = [probes[name] for name in DEVICE_KINDS]
    warm_for = parse_time(config.arena.warm_for)
    return Probe(
        tuple(
            _configured(process, config, warm_for)
            for part in ordered
            for process in part.processes
        ),
        {name: reason for part in ordered for name, reason in part.absent.items()},
    )


def _configured(process: ProcessSpec, config: Config, warm_for: float) -> ProcessSpec:
    """Return `process` with the settings of all: without stealing, no shared tails."""
    device = process.device
    if not config.stealing:
        device = msgspec.structs.replace(device, tail_group="")
    return msgspec.structs.replace(process, warm_for=warm_for, device=device)


def _probe_order() -> list[DeviceKind]:
    """Return the order in which kinds are probed: those that reserve cores first, cores last.

    Cores come last because a team's name must differ from all others. Otherwise in table order.
    """
    return sorted(DEVICE_KINDS.values(), key=lambda kind: (not kind.reserves_cores, kind.is_core))


def _probe_kind(kind: DeviceKind, config: Config, pool: CorePool) -> Probe:
    tables = [
        (index, table)
        for index, table in enumerate(config.device)
        if configured_kind(table.kind) is kind
    ]
    if not tables:
        return Probe()
    result = probe_module(kind).probe(tables, pool)
    _add_names(pool, (process.device.name for process in result.processes))
    return result


def _add_names(pool: CorePool, names: Iterable[str]) -> None:
    for name in names:
        if name in pool.names:
            raise ConfigError(f"two devices are called {name!r}; give one of them another name")
        pool.names.add(name)
