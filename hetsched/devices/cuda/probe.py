"""Finds the GPUs that this process may use, without importing CuPy or creating a context."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Collection, Sequence
from pathlib import Path

from hetsched.config import DeviceConfig
from hetsched.device import DeviceInfo
from hetsched.devices.cpu.topology import cpu_list
from hetsched.devices.cuda.nvml import Gpu, Snapshot, snapshot
from hetsched.devices.probe import CorePool, Probe, ProcessSpec, claimed
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
    if display:
        return max(DISPLAY_RESERVE_BYTES, int(DISPLAY_RESERVE_FRACTION * total))
    return max(RESERVE_BYTES, int(RESERVE_FRACTION * total))


def probe(tables: Sequence[tuple[int, DeviceConfig]], pool: CorePool) -> Probe:
    """Return one process per GPU, driven by one of the unreserved cores.

    Takes as long as NVML: tens of milliseconds with a driver, one without.
    """
    allowed = os.environ.get("CUDA_VISIBLE_DEVICES")
    has_cupy = importlib.util.find_spec("cupy") is not None
    cores = pool.free() if pool.is_pinned else ()
    return select_gpus(tables, snapshot(), allowed, has_cupy, cores)


def select_gpus(
    tables: Sequence[tuple[int, DeviceConfig]],
    machine: Snapshot,
    allowed: str | None,
    has_cupy: bool,
    cores: Sequence[int] = (),
) -> Probe:
    """Return the GPUs of `machine` that the tables ask for. `allowed`: CUDA_VISIBLE_DEVICES."""
    gpus, taken = visible(machine.gpus, allowed), list[int]()

    def lack(config: DeviceConfig, gpu: Gpu | None) -> str:
        if gpu is not None:
            return _reason(gpu, has_cupy, machine.cuda)
        if not gpus:
            return machine.problem or f"CUDA_VISIBLE_DEVICES={allowed!r} hides every GPU"
        return f"this machine has only {counted(len(gpus), 'GPU')}"

    def process(name: str, gpu: Gpu, config: DeviceConfig) -> ProcessSpec:
        own = driving_core(cores, local_cores(gpu.pci), taken)
        taken.extend(own)
        info = _info(name, gpu, machine, config.memory_bytes(), own)
        env = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": gpu.selector}
        return ProcessSpec(package="hetsched.devices.cuda", device=info, config=config, env=env)

    return claimed(tables, "gpu", lambda config: gpus, lack, process)


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


def _reason(gpu: Gpu, has_cupy: bool, cuda: int) -> str:
    if gpu.lost:
        return f"{gpu.name} is lost or needs a reset: ask the machine's administrator"
    if gpu.mig:
        return f"{gpu.name} has MIG on but no instance: create one, or turn MIG off"
    if not has_cupy:
        extra = "cuda13" if cuda >= 13000 else "cuda12"
        return f"{gpu.name} is present but CuPy isn't installed: pip install 'hetsched[{extra}]'"
    return ""


def _info(
    name: str, gpu: Gpu, machine: Snapshot, limit: int | None, cores: tuple[int, ...]
) -> DeviceInfo:
    details = {
        "visible": gpu.selector,
        "pci": gpu.pci,
        "driver": machine.driver,
        "cuda": f"{machine.cuda // 1000}.{machine.cuda % 1000 // 10}" if machine.cuda else "",
        "display": "active" if gpu.display else "",
        "memory": format_bytes(gpu.memory_total) if gpu.memory_total else "",
    }
    memory = limit
    if gpu.memory_free is not None and gpu.memory_total is not None:
        usable = gpu.memory_free - CONTEXT_BYTES - reserve(gpu.memory_total, gpu.display)
        memory = min(size for size in (max(0, usable), limit) if size is not None)
    return DeviceInfo(
        name=name,
        kind="cuda",
        identity=gpu.name,
        link=True,
        memory=memory,
        engines=2,
        cores=cores,
        details={key: value for key, value in details.items() if value},
    )


# ---- the core that drives a GPU: its thread is pinned there; the core isn't reserved


def driving_core(
    free: Sequence[int], local: Collection[int], taken: Collection[int]
) -> tuple[int, ...]:
    """Return the last core near the GPU (`local`) that drives no other; () if there is none.

    A configuration with fewer cores than the machine leaves the last ones idle, and interrupts
    prefer the first.
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
