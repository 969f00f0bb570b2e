"""Queries NVML: identity and memory of the GPUs, driver. Creates no CUDA context.

A query that this GPU, driver or container doesn't support yields None and affects no other. They
are made on a thread, as a driver may not respond.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any

NVML_ABSENT = frozenset({9, 12, 18})
"""Driver not loaded, library not found, library and driver of different versions."""
NVML_LOST = frozenset({15, 16})
"""The GPU fell off the bus, or needs a reset, which hetsched never performs."""
SNAPSHOT_SECONDS = 10.0
"""Time for all queries. Arbitrary."""


@dataclass(frozen=True)
class Gpu:
    """One GPU, or an instance of one with MIG on."""

    index: int
    """Of the whole GPU, in order of PCI addresses."""
    name: str
    uuid: str
    pci: str = ""
    memory_free: int | None = None
    memory_total: int | None = None
    display: bool = False
    mig: bool = False
    """It is divided; without an instance, CUDA can't use it."""
    lost: bool = False

    @property
    def selector(self) -> str:
        """What CUDA_VISIBLE_DEVICES calls it."""
        return self.uuid or str(self.index)


@dataclass(frozen=True)
class Snapshot:
    """All GPUs in the order of their PCI addresses. `problem`: one line on why it is empty."""

    gpus: tuple[Gpu, ...] = ()
    driver: str = ""
    cuda: int = 0
    """Newest CUDA version that the driver supports: 12090 is 12.9; 0: unknown."""
    problem: str = ""


def snapshot(library: Any = None) -> Snapshot:
    """Query all GPUs. Never raises. `library` replaces pynvml in tests."""
    answer: Future[Snapshot] = Future()

    def ask() -> None:
        try:
            nvml = library or importlib.import_module("pynvml")
            nvml.nvmlInit()
            try:
                answer.set_result(_query_all(nvml))
            finally:
                nvml.nvmlShutdown()
        except BaseException as error:
            if not answer.done():
                answer.set_exception(error)

    threading.Thread(target=ask, name="nvml", daemon=True).start()
    try:
        return answer.result(SNAPSHOT_SECONDS)
    except ImportError:
        return Snapshot(problem="nvidia-ml-py isn't installed: pip install nvidia-ml-py")
    except TimeoutError:
        return Snapshot(problem="the NVIDIA driver doesn't respond")
    except Exception as error:  # NVMLError, whose class comes with the library
        return Snapshot(problem=_explain(error))


def _query_all(nvml: Any) -> Snapshot:
    count = nvml.nvmlDeviceGetCount()
    found = [gpu for index in range(count) if (gpu := _gpu(nvml, index)) is not None]
    found.sort(key=lambda gpu: (gpu.pci, gpu.index))
    gpus: list[Gpu] = []
    for index, gpu in enumerate(found):
        instances = _instances(nvml, gpu) if gpu.mig else []
        gpus += [replace(part, index=index) for part in instances or [gpu]]
    return Snapshot(
        gpus=tuple(gpus),
        driver=_text(_query(nvml, "nvmlSystemGetDriverVersion")),
        cuda=_query(nvml, "nvmlSystemGetCudaDriverVersion") or 0,
        problem="" if gpus else "the NVIDIA driver shows no GPU",
    )


def _gpu(nvml: Any, index: int) -> Gpu | None:
    handle = _query(nvml, "nvmlDeviceGetHandleByIndex", index)
    if handle is None:
        return None
    lost: list[int] = []
    memory = _query(nvml, "nvmlDeviceGetMemoryInfo", handle, lost=lost)
    pci = _query(nvml, "nvmlDeviceGetPciInfo", handle, lost=lost)
    mig = _query(nvml, "nvmlDeviceGetMigMode", handle, lost=lost)
    return Gpu(
        index=index,
        name=_text(_query(nvml, "nvmlDeviceGetName", handle, lost=lost)) or f"GPU {index}",
        uuid=_text(_query(nvml, "nvmlDeviceGetUUID", handle, lost=lost)),
        pci="" if pci is None else _text(pci.busId),
        memory_free=None if memory is None else int(memory.free),
        memory_total=None if memory is None else int(memory.total),
        display=_query(nvml, "nvmlDeviceGetDisplayActive", handle, lost=lost) == 1,
        mig=bool(mig and mig[0]),
        lost=bool(lost),
    )


def _instances(nvml: Any, gpu: Gpu) -> list[Gpu]:
    """Return the instances of a GPU with MIG on; they have its place and its driver."""
    handle = _query(nvml, "nvmlDeviceGetHandleByIndex", gpu.index)
    count = _query(nvml, "nvmlDeviceGetMaxMigDeviceCount", handle) or 0
    instances = []
    for number in range(count):
        part = _query(nvml, "nvmlDeviceGetMigDeviceHandleByIndex", handle, number)
        uuid = "" if part is None else _text(_query(nvml, "nvmlDeviceGetUUID", part))
        if not uuid:
            continue
        memory = _query(nvml, "nvmlDeviceGetMemoryInfo", part)
        instances.append(
            replace(
                gpu,
                name=_text(_query(nvml, "nvmlDeviceGetName", part)) or gpu.name,
                uuid=uuid,
                memory_free=None if memory is None else int(memory.free),
                memory_total=None if memory is None else int(memory.total),
                mig=False,
            )
        )
    return instances


def _query(nvml: Any, name: str, *arguments: Any, lost: list[int] | None = None) -> Any:
    """Return the result of one query, or None; append the status of a lost GPU to `lost`."""
    call: Callable[..., Any] | None = getattr(nvml, name, None)
    if call is None:
        return None
    try:
        return call(*arguments)
    except nvml.NVMLError as error:
        status = getattr(error, "value", 0)
        if status in NVML_LOST and lost is not None:
            lost.append(status)
        return None


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value or "")


def _explain(error: Exception) -> str:
    status = getattr(error, "value", 0)
    if status == 18:
        return (
            "the NVIDIA driver and its library are of different versions: reboot after an upgrade"
        )
    if status in NVML_ABSENT:
        return "no NVIDIA driver"
    return f"NVML: {error}"
