"""Finds the devices of a configuration on this machine, and the processes that host them.

Each kind finds and opens its own devices: it is one entry of `hetsched.device.DEVICE_KINDS`
and a package with two modules, whose vendor libraries are imported inside the functions.

``probe`` has ``probe(tables, pool)``, for the ``[[device]]`` tables of the kind with their indices
in the configuration. It opens nothing, reserves cores dedicated to a device in the `CorePool`, and
raises ConfigError (a table asks for something impossible on this machine) or Unavailable (a device
that isn't optional is missing).

``device``, imported only in a device process, has ``open_device(info, config)``, called on the
thread that will drive the device. It raises Unavailable.
"""

from __future__ import annotations

import importlib
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec

from hetsched.config import Config, DeviceConfig
from hetsched.device import DEVICE_KINDS, DeviceInfo, DeviceKind, configured_kind
from hetsched.devices.base import Device
from hetsched.errors import ConfigError, Unavailable
from hetsched.machine_limits import ControlGroups

T = TypeVar("T")


class ProcessSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A device process: its device, the configuration, extra environment variables.

    `package`: the package of the kind, which opens the device. `lazy`: the process is started
    when a job first needs it. `forks`: it is forked from a warm template, which has no vendor
    runtimes and no `env`. `warm_for`: seconds for which an idle device keeps memory.
    """

    package: str
    device: DeviceInfo
    config: DeviceConfig
    env: dict[str, str] = {}
    lazy: bool = False
    forks: bool = False
    warm_for: float = 60.0


class Probe(msgspec.Struct, frozen=True):
    """`absent`: names or groups of missing devices -> the reason, one line each."""

    processes: tuple[ProcessSpec, ...] = ()
    absent: dict[str, str] = {}


@dataclass
class CorePool:
    """The cores of the affinity mask, in order; configurations count them from 0.

    `reserved`: cores of one device. `names`: of the devices probed so far.
    """

    cores: tuple[int, ...]
    usable: int
    """Number that may be busy at once: fewer than `cores` under a cgroup quota."""
    reserved: set[int] = field(default_factory=set)
    names: set[str] = field(default_factory=set)

    @property
    def is_pinned(self) -> bool:
        """Whether threads are pinned. Not under a quota, or every container on the machine would
        choose the same cores."""
        return self.usable == len(self.cores)

    def free(self) -> tuple[int, ...]:
        return tuple(core for core in self.cores if core not in self.reserved)

    def reserve(self, number: int) -> int:
        """Reserve core `number`, 0 <= number < `usable`, and return its id."""
        core = self.cores[number]
        self.reserved.add(core)
        return core


# ---- probing


def probe(config: Config) -> Probe:
    """Find the devices that `config` asks for, in tens of ms. Raises ConfigError, Unavailable."""
    pool = core_pool()
    # Those that reserve cores first; cores last, as a team's name must differ from all others.
    order = sorted(DEVICE_KINDS.values(), key=lambda kind: (not kind.reserves_cores, kind.is_core))
    probes = {kind.name: _probe_kind(kind, config, pool) for kind in order}
    ordered = [probes[name] for name in DEVICE_KINDS]
    processes = [process for part in ordered for process in part.processes]
    absent = {name: reason for part in ordered for name, reason in part.absent.items()}
    replace = msgspec.structs.replace
    warm_for = float(config.arena.warm_for)  # msgspec encodes no subclass of float
    if not config.stealing:  # no shared tails
        processes = [replace(p, device=replace(p.device, tail_group="")) for p in processes]
    return Probe(tuple(replace(process, warm_for=warm_for) for process in processes), absent)


def _probe_kind(kind: DeviceKind, config: Config, pool: CorePool) -> Probe:
    tables = [
        (index, table)
        for index, table in enumerate(config.device)
        if configured_kind(table.kind) is kind
    ]
    if not tables:
        return Probe()
    result: Probe = importlib.import_module(f"{kind.package}.probe").probe(tables, pool)
    for process in result.processes:
        name = process.device.name
        if name in pool.names:
            raise ConfigError(f"device: two are called {name!r}; give one of them another name")
        pool.names.add(name)
    return result


def core_pool() -> CorePool:
    """Return the cores of this process, all free."""
    allowed = tuple(sorted(os.sched_getaffinity(0)))
    return CorePool(allowed, max(1, math.ceil(min(len(allowed), ControlGroups().cores()))))


def device_name(config: DeviceConfig, default: str, number: int) -> str:
    if config.name is None:
        return default
    return config.name if (config.count or 1) == 1 else f"{config.name}{number}"


def claimed(
    tables: Sequence[tuple[int, DeviceConfig]],
    prefix: str,
    offered: Callable[[DeviceConfig], Sequence[T]],
    lack: Callable[[DeviceConfig, T | None], str],
    process: Callable[[str, T, DeviceConfig], ProcessSpec],
) -> Probe:
    """Give each table the devices that it asks for, or all that earlier ones have left.

    `offered`: the devices of this machine that suit a table. `lack`: why one can't be used ("": it
    can), or why there is none.
    """
    processes: list[ProcessSpec] = []
    absent: dict[str, str] = {}
    taken: list[T] = []
    for _, config in tables:
        left = [one for one in offered(config) if one not in taken]
        for number in range(config.count or max(1, len(left))):
            name = device_name(config, f"{prefix}{len(processes) + len(absent)}", number)
            one = left[number] if number < len(left) else None
            reason = lack(config, one)
            if one is not None:
                taken.append(one)
            if one is not None and not reason:
                processes.append(process(name, one, config))
            elif config.optional:
                absent[name] = reason
            else:
                raise Unavailable(f"{name}: {reason} (the config asks for it)")
    return Probe(tuple(processes), absent)


def open_device(spec: ProcessSpec) -> Device:
    """Open the device of `spec`, on the thread that will drive it. Raises Unavailable."""
    module = importlib.import_module(f"{spec.package}.device")
    device: Device = module.open_device(spec.device, spec.config)
    return device
