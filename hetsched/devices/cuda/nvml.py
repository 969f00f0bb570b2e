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

PROBLEMS = {
    9: "no NVIDIA driver",  # It isn't loaded
    12: "no NVIDIA driver",  # Nor is its library there
    18: "the NVIDIA driver and its library are of different versions: reboot after an upgrade",
}
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
        return Snapshot(problem=PROBLEMS.get(getattr(error, "value", 0), f"NVML: {error}"))


class _Queries:
    """Queries by their names. One that is refused yields None."""

    def __init__(self, nvml: Any) -> None:
        self._nvml = nvml
        self.is_lost = False
        """One has found that the GPU is lost."""

    def __call__(self, name: str, *arguments: Any) -> Any:
        call: Callable[..., Any] | None = getattr(self._nvml, f"nvml{name}", None)
        if call is None:
            return None
        try:
            return call(*arguments)
        except self._nvml.NVMLError as error:
            self.is_lost |= getattr(error, "value", 0) in NVML_LOST
            return None


def _query_all(nvml: Any) -> Snapshot:
    ask = _Queries(nvml)
    found = [each for number in range(nvml.nvmlDeviceGetCount()) if (each := _gpus(ask, number))]
    found.sort(key=lambda each: each[0].pci)
    gpus = tuple(replace(gpu, index=index) for index, each in enumerate(found) for gpu in each)
    return Snapshot(
        gpus,
        driver=_text(ask("SystemGetDriverVersion")),
        cuda=ask("SystemGetCudaDriverVersion") or 0,
        problem="" if gpus else "the NVIDIA driver shows no GPU",
    )


def _gpus(ask: _Queries, number: int) -> list[Gpu]:
    """Return a GPU, or if MIG is on its instances, which have its place and its driver."""
    ask.is_lost = False
    handle = ask("DeviceGetHandleByIndex", number)
    if handle is None:
        return []
    mig = ask("DeviceGetMigMode", handle)
    gpu = Gpu(
        number,
        f"GPU {number}",
        uuid="",
        pci=_text(getattr(ask("DeviceGetPciInfo", handle), "busId", "")),
        display=ask("DeviceGetDisplayActive", handle) == 1,
        mig=bool(mig and mig[0]),
    )
    gpu = _described(ask, handle, gpu)
    gpu = replace(gpu, lost=ask.is_lost)
    count = (ask("DeviceGetMaxMigDeviceCount", handle) or 0) if gpu.mig else 0
    parts = [ask("DeviceGetMigDeviceHandleByIndex", handle, part) for part in range(count)]
    whole = replace(gpu, uuid="", mig=False)
    instances = [_described(ask, part, whole) for part in parts if part is not None]
    return [instance for instance in instances if instance.uuid] or [gpu]


def _described(ask: _Queries, handle: Any, gpu: Gpu) -> Gpu:
    memory = ask("DeviceGetMemoryInfo", handle)
    return replace(
        gpu,
        name=_text(ask("DeviceGetName", handle)) or gpu.name,
        uuid=_text(ask("DeviceGetUUID", handle)),
        memory_free=getattr(memory, "free", None),
        memory_total=getattr(memory, "total", None),
    )


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value or "")
