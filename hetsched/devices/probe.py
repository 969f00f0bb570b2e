"""Which devices a configuration means on this machine, and which processes host them.

One process for all CPU cores, one for the team that they make, one for each emulated device and
each GPU. Nothing is opened here.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from hetsched.config import Config, DeviceConfig
from hetsched.device import DeviceInfo
from hetsched.devices.cpu import cores
from hetsched.devices.cuda import probe as cuda_probe
from hetsched.errors import ConfigError, Unavailable

THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
"""What tells libraries in a process of its own how many threads they may have."""


class ProcessSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A device process: its devices, what it was configured as, extra environment.

    `lazy`: it is started when a job first needs it.
    """

    kind: str
    devices: tuple[DeviceInfo, ...]
    config: DeviceConfig
    env: dict[str, str] = {}
    lazy: bool = False


class Probe(msgspec.Struct, frozen=True):
    """`absent`: names or kinds of devices that aren't there -> why, one line each."""

    processes: tuple[ProcessSpec, ...]
    absent: dict[str, str]


@dataclass
class _Machine:
    """The cores that may be used, in order; configurations count them from 0.

    `amount`: how many at once, fewer than `cores` under a quota. `taken`: by emulated devices.
    """

    cores: list[int]
    amount: int
    taken: set[int] = field(default_factory=set)


def probe(config: Config) -> Probe:
    """What `config` means here. Tens of milliseconds.

    Raises
    ------
    ConfigError
        It asks for a core that isn't there, or names two devices alike.
    Unavailable
        A GPU that isn't optional is absent.
    """
    machine = _machine()
    processes: list[ProcessSpec] = []
    absent: dict[str, str] = {}
    # Emulated devices come first: they take cores away from the CPU device.
    for index, device in enumerate(config.device):
        if device.kind == "emulated":
            processes += _emulated(index, device, machine, len(processes))
    for index, device in enumerate(config.device):
        if device.kind == "cpu":
            processes += _cpu(index, device, machine, absent)
        elif device.kind == "gpu":
            processes += _gpus(device, machine, absent)
    processes += _teams(processes)
    order = {"cpu": 0, "cuda": 1, "emulated": 2}
    processes.sort(key=lambda process: order[process.kind])
    _check_names(processes)
    return Probe(tuple(processes), absent)


def _machine() -> _Machine:
    allowed = cores.allowed()
    return _Machine(allowed, max(1, math.ceil(min(len(allowed), cores.quota()))))


def _cpu(
    index: int, config: DeviceConfig, machine: _Machine, absent: dict[str, str]
) -> list[ProcessSpec]:
    free = [core for core in machine.cores if core not in machine.taken]
    amount = min(len(free), machine.amount - len(machine.taken))
    if amount <= 0:
        absent[config.name or "cpu"] = "emulated devices are pinned to all cores"
        return []
    if config.count is not None and config.count > amount:
        raise ConfigError(
            f"device[{index}].count: {config.count} cores are asked for, {amount} may be used here"
        )
    # Under a quota threads aren't pinned: every container on the machine would choose the same.
    pinned = machine.amount == len(machine.cores)
    identity = cores.processor()
    infos = tuple(
        DeviceInfo(
            name=f"{config.name or 'cpu'}{number}",
            kind="cpu",
            identity=identity,
            cores=(core,) if pinned else (),
        )
        for number, core in enumerate(free[: config.count or amount])
    )
    return [ProcessSpec(kind="cpu", devices=infos, config=config)]


def _teams(processes: Sequence[ProcessSpec]) -> list[ProcessSpec]:
    """Of each process with several cores; called what no other device is called."""
    taken = {info.name for process in processes for info in process.devices}
    free = (name for name in map("team{}".format, itertools.count()) if name not in taken)
    several = [one for one in processes if one.kind == "cpu" and len(one.devices) > 1]
    return [_team(next(free), cores) for cores in several if cores.config.team]


def _team(name: str, cores: ProcessSpec) -> ProcessSpec:
    """The cores of a process as one device, for kernels with threads of their own.

    Its process is lazy: it costs time and memory, and most loads have units for every core.
    """
    members = cores.devices
    info = DeviceInfo(
        name=name,
        kind="cpu",
        identity=f"{members[0].identity} x{len(members)} threads",
        cores=tuple(core for member in members for core in member.cores),
        members=tuple(member.name for member in members),
    )
    threads = {name: str(len(members)) for name in THREADS}
    return ProcessSpec(kind="cpu", devices=(info,), config=cores.config, env=threads, lazy=True)


def _emulated(
    index: int, config: DeviceConfig, machine: _Machine, before: int
) -> list[ProcessSpec]:
    """One process for each copy; copies are pinned to cores that follow each other."""
    count = config.count or 1
    processes = []
    for number in range(count):
        pinned = () if config.core is None else (_take(index, config.core + number, machine),)
        copy = msgspec.structs.replace(config, seed=config.seed + number)
        if config.name is None:
            name = f"emu{before + number}"
        else:
            name = config.name if count == 1 else f"{config.name}{number}"
        info = _emulated_info(name, copy, pinned)
        processes.append(ProcessSpec(kind="emulated", devices=(info,), config=copy))
    return processes


def _take(index: int, number: int, machine: _Machine) -> int:
    if not 0 <= number < machine.amount:
        raise ConfigError(
            f"device[{index}].core: there is no core {number}; 0 to {machine.amount - 1} may be"
            " used here"
        )
    machine.taken.add(machine.cores[number])
    return machine.cores[number]


def _emulated_info(name: str, config: DeviceConfig, pinned: tuple[int, ...]) -> DeviceInfo:
    """Its identity says what it emulates, so that another configuration has models of its own."""
    costs = [config.compute, config.h2d, config.d2h, config.engines, config.duplex, config.stalls]
    costs += [] if config.feed is None else [config.feed]
    digest = hashlib.blake2b(msgspec.json.encode(costs), digest_size=4).hexdigest()
    compute = config.compute
    speed = (compute.rate or f"{compute.unit} a unit") if compute is not None else ""
    virtual = config.clock == "virtual"
    return DeviceInfo(
        name=name,
        kind="emulated",
        identity=f"emulated {'virtual ' if virtual else ''}{speed} {digest}",
        link=config.link,
        memory=config.memory_bytes() if config.link else None,
        engines=config.engines if config.link else 0,
        cores=pinned,
        clock="virtual" if virtual else "wall",
        details={} if virtual else {"processor": cores.processor()},
    )


def _gpus(config: DeviceConfig, machine: _Machine, absent: dict[str, str]) -> list[ProcessSpec]:
    """Their processes run on any core that no emulated device has to itself."""
    infos, missing = cuda_probe.probe(config)
    if missing and not config.optional:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in missing.items())
        raise Unavailable(f"{reasons} (the config asks for it without optional = true)")
    absent.update(missing)
    pinned = machine.amount == len(machine.cores)
    free = tuple(core for core in machine.cores if pinned and core not in machine.taken)
    infos = [msgspec.structs.replace(info, cores=free) for info in infos]
    return [
        ProcessSpec(kind="cuda", devices=(info,), config=config, env=_gpu_env(info))
        for info in infos
    ]


def _gpu_env(info: DeviceInfo) -> dict[str, str]:
    """The process sees its own GPU only."""
    env = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    if info.details.get("uuid"):
        env["CUDA_VISIBLE_DEVICES"] = info.details["uuid"]
    return env


def _check_names(processes: list[ProcessSpec]) -> None:
    seen: set[str] = set()
    for process in processes:
        for info in process.devices:
            if info.name in seen:
                raise ConfigError(f"two devices are called {info.name!r}; give them other names")
            seen.add(info.name)
