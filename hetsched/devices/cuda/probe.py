"""Finds the GPUs that this process may use, without importing CuPy or creating a context."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Collection, Sequence
from pathlib import Path

import msgspec

from hetsched.config import DeviceConfig
from hetsched.device import DeviceInfo
from hetsched.devices.cpu.topology import cpu_list
from hetsched.devices.cuda.nvml import Gpu, Snapshot, snapshot
from hetsched.devices.probe import CorePool, Probe, ProcessSpec, device_name
from hetsched.errors import Unavailable
from hetsched.units import counted, format_bytes

_PCI_DEVICES = Path("/sys/bus/pci/devices")
RESERVE_BYTES = 512 << 20
RESERVE_FRACTION = 0.02
"""Reserve for CUDA and other processes: bytes, and fraction of the device's memory."""
DISPLAY_RESERVE_BYTES = 1 << 30
DISPLAY_RESERVE_FRACTION = 0.1
"""The same for a GPU that drives a display: the desktop stutters when its memory is full."""
CONTEXT_BYTES = 640 << 20
"""Bytes taken by a context, modules and cuBLAS. An estimate: the device process reports the memory
that is actually free."""


def reserve(total: int, display: bool) -> int:
    """Return the bytes to leave free on a device of `total`."""
    if display:
        return max(DISPLAY_RESERVE_BYTES, int(DISPLAY_RESERVE_FRACTION * total))
    return max(RESERVE_BYTES, int(RESERVE_FRACTION * total))


def budget(free: int, total: int, display: bool, limit: int | None) -> int:
    """Return the bytes of `free` for jobs (b of Ilic & Sousa), once the context exists."""
    usable = max(0, free - reserve(total, display))
    return usable if limit is None else min(usable, limit)


def probe(tables: Sequence[tuple[int, DeviceConfig]], pool: CorePool) -> Probe:
    """Return one process per GPU, driven by one of the unreserved cores."""
    processes: list[ProcessSpec] = []
    absent: dict[str, str] = {}
    free = pool.free() if pool.is_pinned else ()
    taken: list[int] = []
    for _, config in tables:
        infos, missing = detect(config, len(processes) + len(absent))
        if missing and not config.optional:
            reasons = "; ".join(f"{name}: {reason}" for name, reason in missing.items())
            raise Unavailable(f"{reasons} (the config asks for it without optional = true)")
        absent.update(missing)
        for info in infos:
            cores = driving_core(free, local_cores(info.details.get("pci", "")), taken)
            taken += cores
            processes.append(_process(info, config, cores))
    return Probe(tuple(processes), absent)


def _process(info: DeviceInfo, config: DeviceConfig, cores: tuple[int, ...]) -> ProcessSpec:
    """Return the process of a GPU, to which only that GPU is visible."""
    env = {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": info.details["visible"],
    }
    info = msgspec.structs.replace(info, cores=cores)
    return ProcessSpec(package="hetsched.devices.cuda", device=info, config=config, env=env)


def detect(config: DeviceConfig, taken: int = 0) -> tuple[list[DeviceInfo], dict[str, str]]:
    """Return the GPUs that `config` asks for, and name -> reason for missing ones.

    `taken`: how many other tables have. Takes as long as NVML: tens of milliseconds with a driver,
    one without.
    """
    allowed = os.environ.get("CUDA_VISIBLE_DEVICES")
    return select_gpus(config, snapshot(), allowed, has_cupy(), taken)


def has_cupy() -> bool:
    return importlib.util.find_spec("cupy") is not None


def select_gpus(
    config: DeviceConfig, machine: Snapshot, allowed: str | None, cupy: bool, taken: int = 0
) -> tuple[list[DeviceInfo], dict[str, str]]:
    """Return the GPUs of `machine` that `config` asks for.

    `allowed`: CUDA_VISIBLE_DEVICES; `taken`: as in `detect`.
    """
    if machine.problem:
        return [], {device_name(config, f"gpu{taken}", 0): machine.problem}
    gpus = visible(machine.gpus, allowed)
    if not gpus:
        hidden = f"CUDA_VISIBLE_DEVICES={allowed!r} hides every GPU"
        return [], {device_name(config, f"gpu{taken}", 0): hidden}
    infos, absent = [], {}
    for number in range(config.count or max(1, len(gpus) - taken)):
        name = device_name(config, f"gpu{taken + number}", number)
        reason = _reason(gpus, taken + number, cupy, machine.cuda)
        if reason:
            absent[name] = reason
        else:
            infos.append(_info(name, gpus[taken + number], machine, config.memory_bytes()))
    return infos, absent


def visible(gpus: tuple[Gpu, ...], allowed: str | None) -> list[Gpu]:
    """Return the GPUs in CUDA_VISIBLE_DEVICES, in its order, up to the first invalid entry."""
    if allowed is None:
        return list(gpus)
    chosen: list[Gpu] = []
    for token in allowed.split(","):
        gpu = _named(gpus, token.strip())
        if gpu is None or gpu in chosen:
            break
        chosen.append(gpu)
    return chosen


def _named(gpus: tuple[Gpu, ...], token: str) -> Gpu | None:
    if token.isdecimal():  # of a GPU with MIG on, CUDA takes the first instance
        return next((gpu for gpu in gpus if gpu.index == int(token)), None)
    is_uuid = token.startswith(("GPU-", "MIG-"))
    matches = [gpu for gpu in gpus if is_uuid and gpu.uuid.startswith(token)]
    return matches[0] if len(matches) == 1 else None


def _reason(gpus: list[Gpu], number: int, cupy: bool, cuda: int) -> str:
    """Return the reason why GPU `number` can't be used, or ""."""
    if number >= len(gpus):
        return f"this machine has only {counted(len(gpus), 'GPU')}"
    if gpus[number].lost:
        return f"{gpus[number].name} is lost or needs a reset: ask the machine's administrator"
    if gpus[number].mig:
        return f"{gpus[number].name} has MIG on but no instance: create one, or turn MIG off"
    if not cupy:
        extra = "cuda13" if cuda >= 13000 else "cuda12"
        name = gpus[number].name
        return f"{name} is present but CuPy isn't installed: pip install 'hetsched[{extra}]'"
    return ""


def _cuda_version(number: int) -> str:
    """Format 12090 as "12.9"; 0, which means unknown, as ""."""
    return f"{number // 1000}.{number % 1000 // 10}" if number else ""


def _info(name: str, gpu: Gpu, machine: Snapshot, limit: int | None) -> DeviceInfo:
    details = {
        "visible": gpu.selector,
        "pci": gpu.pci,
        "driver": machine.driver,
        "cuda": _cuda_version(machine.cuda),
        "display": "active" if gpu.display else "",
        "memory": format_bytes(gpu.memory_total) if gpu.memory_total else "",
    }
    memory = limit
    if gpu.memory_free is not None and gpu.memory_total is not None:
        free = max(0, gpu.memory_free - CONTEXT_BYTES)
        memory = budget(free, gpu.memory_total, gpu.display, limit)
    return DeviceInfo(
        name=name,
        kind="cuda",
        identity=gpu.name,
        link=True,
        memory=memory,
        engines=2,
        details={key: value for key, value in details.items() if value},
    )


# ---- the core that drives a GPU: its thread is pinned there; the core isn't reserved


def driving_core(
    free: Sequence[int], local: Collection[int], taken: Collection[int]
) -> tuple[int, ...]:
    """Return the core of `free` that should drive a GPU; () if there is none. Pure.

    The last one that is near the GPU and drives no other, since a configuration with fewer cores
    than the machine leaves the last ones idle, and interrupts prefer the first.

    Parameters
    ----------
    free : sequence of int
        Cores that aren't reserved.
    local : collection of int
        Cores near the GPU; empty: unknown.
    taken : collection of int
        Cores that drive other GPUs.
    """
    near = [core for core in free if core in local] or list(free)
    unused = [core for core in near if core not in taken] or near
    return tuple(unused[-1:])


def local_cores(pci: str, devices: Path = _PCI_DEVICES) -> frozenset[int]:
    """Return the cores near the device at PCI address `pci`, as NVML writes it; empty: unknown."""
    domain, _, rest = pci.lower().partition(":")
    try:
        address = f"{int(domain, 16):04x}:{rest}"  # NVML's domain has eight digits
    except ValueError:
        return frozenset()
    return frozenset(cpu_list(devices / address / "local_cpulist"))
