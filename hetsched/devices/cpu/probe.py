"""Finds CPU cores, each with a device process, and the teams that they form."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from hetsched.config import DeviceConfig
from hetsched.device import DeviceInfo
from hetsched.devices.cpu.topology import one_per_core, read_topology
from hetsched.devices.probe import CorePool, Probe, ProcessSpec
from hetsched.errors import ConfigError
from hetsched.machine_limits import processor

_PACKAGE = "hetsched.devices.cpu"

THREAD_VARIABLES = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
"""Environment variables that limit the threads of a library."""


def probe(tables: Sequence[tuple[int, DeviceConfig]], pool: CorePool) -> Probe:
    """Return the unreserved cores, and one team per table with several cores."""
    cores: list[ProcessSpec] = []
    absent: dict[str, str] = {}
    groups: list[tuple[DeviceConfig, tuple[DeviceInfo, ...]]] = []
    for index, config in tables:
        free = min(len(pool.free()), pool.usable - len(pool.reserved))
        if free <= 0:
            absent[config.name or "cpu"] = "emulated devices are pinned to all cores"
            continue
        infos = _cores(index, config, pool, free)
        cores += [
            ProcessSpec(package=_PACKAGE, device=info, config=config, forks=True) for info in infos
        ]
        if len(infos) > 1 and config.team:
            groups.append((config, infos))
    taken = pool.names.union(core.device.name for core in cores)
    names = (name for name in map("team{}".format, itertools.count()) if name not in taken)
    teams = [_team(name, *group) for name, group in zip(names, groups, strict=False)]
    return Probe((*cores, *teams), absent)


def _cores(index: int, config: DeviceConfig, pool: CorePool, free: int) -> tuple[DeviceInfo, ...]:
    threads = read_topology(pool.free())
    if not config.hardware_threads:
        threads = one_per_core(threads)
    available = min(free, len(threads))
    if config.count is not None and config.count > available:
        hint = "" if available == free else "; see hardware_threads"
        raise ConfigError(
            f"device[{index}].count: {config.count} cores requested, {available} available"
            f" here{hint}"
        )
    identity = processor()
    prefix = config.name or "cpu"
    return tuple(
        DeviceInfo(
            name=f"{prefix}{number}",
            kind="cpu",
            # Cores of different types aren't equal.
            identity=f"{identity}, {thread.core_type} core"
            if thread.core_type and pool.is_pinned
            else identity,
            cores=(thread.cpu,) if pool.is_pinned else (),
            tail_group=f"{prefix}0",
            physical_core=thread.physical_core if pool.is_pinned else None,
            numa_node=thread.numa_node if pool.is_pinned else None,
        )
        for number, thread in enumerate(threads[: config.count or available])
    )


def _team(name: str, config: DeviceConfig, members: tuple[DeviceInfo, ...]) -> ProcessSpec:
    """Return these cores as one device, for kernels that use threads.

    Its process is lazy: it costs time and memory, and most loads have enough units for all cores.
    """
    info = DeviceInfo(
        name=name,
        kind="cpu",
        identity=f"{members[0].identity} x{len(members)} threads",
        cores=tuple(core for member in members for core in member.cores),
        members=tuple(member.name for member in members),
    )
    threads = dict.fromkeys(THREAD_VARIABLES, str(len(members)))
    return ProcessSpec(package=_PACKAGE, device=info, config=config, env=threads, lazy=True)
