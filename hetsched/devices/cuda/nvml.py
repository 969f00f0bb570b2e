"""Queries NVML: identity, memory and throttling of the GPUs, driver. Creates no CUDA context.

A query that this GPU, driver or container doesn't support yields None and affects no other. All
calls are made by `NvmlThread`: they can stall while another process pins memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hetsched.devices.cuda.faults import NVML_ABSENT, NVML_LOST
from hetsched.devices.cuda.nvml_thread import NvmlThread

SNAPSHOT_SECONDS = 10.0
"""Time for all of a snapshot, which is taken at the start. Arbitrary."""
THROTTLED_SECONDS = 0.2
"""Time for the query after a job, whose result may be unknown. Arbitrary."""

THROTTLE_REASONS = {
    0x8: "hardware slowdown",
    0x20: "too hot (software)",
    0x40: "too hot (hardware)",
    0x80: "power brake",
}
"""Bits of the clocks' event reasons that invalidate a measurement. A power cap is normal."""


@dataclass(frozen=True)
class Gpu:
    """One GPU. `memory_free` and `memory_total` in bytes, None if not available."""

    index: int
    name: str
    uuid: str
    pci: str = ""
    memory_free: int | None = None
    memory_total: int | None = None
    display: bool = False
    mig: bool = False
    lost: bool = False


@dataclass(frozen=True)
class Snapshot:
    """All GPUs in the order of their PCI addresses. `problem`: one line on why it is empty."""

    gpus: tuple[Gpu, ...] = ()
    driver: str = ""
    cuda: int = 0
    """Newest CUDA version that the driver supports: 12090 is 12.9; 0: unknown."""
    problem: str = ""


_thread = NvmlThread()


def snapshot(thread: NvmlThread = _thread) -> Snapshot:
    """Query all GPUs, also those that came after the last snapshot. Never raises."""
    try:
        return thread.ask(_query_all, SNAPSHOT_SECONDS, reopen=True)
    except ImportError:
        return Snapshot(problem="nvidia-ml-py isn't installed: pip install nvidia-ml-py")
    except TimeoutError:
        return Snapshot(problem="the NVIDIA driver doesn't respond")
    except Exception as error:  # NVMLError, whose class comes with the library
        return Snapshot(problem=_explain(error))


def throttled(uuid: str, thread: NvmlThread = _thread) -> tuple[str, ...]:
    """Return the reasons for which the GPU is throttled; () if it isn't, or unknown."""

    def event_reasons(nvml: Any) -> int | None:
        handle = nvml.nvmlDeviceGetHandleByUUID(uuid)
        bits: int | None = _query(nvml, "nvmlDeviceGetCurrentClocksEventReasons", handle)
        if bits is None:
            bits = _query(nvml, "nvmlDeviceGetCurrentClocksThrottleReasons", handle)
        return bits

    try:
        bits = thread.ask(event_reasons, THROTTLED_SECONDS) or 0
    except Exception:  # no library, no driver, no such GPU, or no answer
        return ()
    return tuple(text for bit, text in THROTTLE_REASONS.items() if bits & bit)


def _query_all(nvml: Any) -> Snapshot:
    count = nvml.nvmlDeviceGetCount()
    gpus = [gpu for index in range(count) if (gpu := _gpu(nvml, index)) is not None]
    gpus.sort(key=lambda gpu: (gpu.pci, gpu.index))
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
