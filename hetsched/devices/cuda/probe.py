"""Which GPUs this process may use, without importing CuPy or making a context."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Sequence

import msgspec

from hetsched.config import DeviceConfig
from hetsched.device import DeviceInfo
from hetsched.devices.core_pool import CorePool
from hetsched.devices.cuda import nvml
from hetsched.devices.cuda.nvml import Gpu, Snapshot, snapshot
from hetsched.devices.process_spec import Probe, ProcessSpec
from hetsched.errors import Unavailable
from hetsched.units import format_bytes

RESERVE = 512 << 20
RESERVE_SHARE = 0.02
"""Bytes, and share of the device's memory, that are left for what CUDA and others still take."""
DISPLAY_RESERVE = 1 << 30
DISPLAY_SHARE = 0.1
"""The same where a desktop is drawn by this GPU: a full one stutters."""
CONTEXT = 640 << 20
"""Bytes that a context, modules and cuBLAS take before anything is asked for. An estimate: the
device process says what is really left."""


def budget(free: int, total: int, display: bool, limit: int | None) -> int:
    """Bytes that a job may use (b of Ilic & Sousa) of `free`, after the context is made."""
    floor, share = (DISPLAY_RESERVE, DISPLAY_SHARE) if display else (RESERVE, RESERVE_SHARE)
    usable = max(0, free - max(floor, int(share * total)))
    return usable if limit is None else min(usable, limit)


def probe(tables: Sequence[tuple[int, DeviceConfig]], pool: CorePool) -> Probe:
    """One process per GPU, on all cores that no other device reserves."""
    processes: list[ProcessSpec] = []
    absent: dict[str, str] = {}
    cores = pool.free() if pool.is_pinned else ()
    for _, config in tables:
        infos, missing = detect(config)
        if missing and not config.optional:
            reasons = "; ".join(f"{name}: {reason}" for name, reason in missing.items())
            raise Unavailable(f"{reasons} (the config asks for it without optional = true)")
        absent.update(missing)
        processes += [_process(info, config, cores) for info in infos]
    return Probe(tuple(processes), absent)


def throttle_reasons(info: DeviceInfo) -> tuple[str, ...]:
    """What NVML says now."""
    return nvml.throttled(info.details.get("uuid", ""))


def _process(info: DeviceInfo, config: DeviceConfig, cores: tuple[int, ...]) -> ProcessSpec:
    """The process sees its own GPU only."""
    env = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    if info.details.get("uuid"):
        env["CUDA_VISIBLE_DEVICES"] = info.details["uuid"]
    info = msgspec.structs.replace(info, cores=cores)
    return ProcessSpec(package="hetsched.devices.cuda", devices=(info,), config=config, env=env)


def detect(config: DeviceConfig) -> tuple[list[DeviceInfo], dict[str, str]]:
    """The GPUs that `config` asks for; and name -> reason for those that are missing.

    Takes what NVML takes: some ten milliseconds with a driver, one without.
    """
    return select_gpus(config, snapshot(), os.environ.get("CUDA_VISIBLE_DEVICES"), has_cupy())


def has_cupy() -> bool:
    return importlib.util.find_spec("cupy") is not None


def select_gpus(
    config: DeviceConfig, machine: Snapshot, allowed: str | None, cupy: bool
) -> tuple[list[DeviceInfo], dict[str, str]]:
    """The GPUs of `machine` that `config` asks for; `allowed` is CUDA_VISIBLE_DEVICES."""
    if machine.problem:
        return [], {config.name or "gpu0": machine.problem}
    gpus = visible(machine.gpus, allowed)
    if not gpus:
        return [], {config.name or "gpu0": f"CUDA_VISIBLE_DEVICES={allowed!r} hides every GPU"}
    infos, absent = [], {}
    for number in range(config.count or len(gpus)):
        name = _name(config, number)
        reason = _reason(gpus, number, cupy, machine.cuda)
        if reason:
            absent[name] = reason
        else:
            infos.append(_info(name, gpus[number], machine, config.memory_bytes()))
    return infos, absent


def visible(gpus: tuple[Gpu, ...], allowed: str | None) -> list[Gpu]:
    """Those that CUDA_VISIBLE_DEVICES lets through, in its order, up to the first bad one."""
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
    if token.isdecimal():
        return gpus[int(token)] if int(token) < len(gpus) else None
    matches = [gpu for gpu in gpus if token.startswith("GPU-") and gpu.uuid.startswith(token)]
    return matches[0] if len(matches) == 1 else None


def _name(config: DeviceConfig, number: int) -> str:
    if config.name is None:
        return f"gpu{number}"
    return config.name if (config.count or 1) == 1 else f"{config.name}{number}"


def _reason(gpus: list[Gpu], number: int, cupy: bool, cuda: int) -> str:
    """Why GPU `number` can't be used, or ""."""
    if number >= len(gpus):
        return f"there are only {len(gpus)} GPUs"
    if gpus[number].lost:
        return f"{gpus[number].name} is lost or needs a reset: ask whoever looks after the machine"
    if not cupy:
        extra = "cuda13" if cuda >= 13000 else "cuda12"
        return f"{gpus[number].name} is there, CuPy isn't: pip install 'hetsched[{extra}]'"
    return ""


def _cuda_version(number: int) -> str:
    """12090 is "12.9"; 0, which means unknown, is ""."""
    return f"{number // 1000}.{number % 1000 // 10}" if number else ""


def _info(name: str, gpu: Gpu, machine: Snapshot, limit: int | None) -> DeviceInfo:
    details = {
        "uuid": gpu.uuid,
        "pci": gpu.pci,
        "driver": machine.driver,
        "cuda": _cuda_version(machine.cuda),
        "display": "active" if gpu.display else "",
        "mig": "on" if gpu.mig else "",
        "memory": format_bytes(gpu.memory_total) if gpu.memory_total else "",
    }
    memory = limit
    if gpu.memory_free is not None and gpu.memory_total is not None:
        free = max(0, gpu.memory_free - CONTEXT)
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
