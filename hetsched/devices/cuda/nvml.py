"""What NVML says of the GPUs: identity, memory, driver, throttling. Makes no CUDA context.

Every query stands alone: one that this GPU, driver or container doesn't support yields None and
spoils nothing. Calls can stall while another process pins memory, so none of this belongs on a
scheduling path.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from hetsched.devices.cuda.faults import NVML_ABSENT, NVML_LOST

THROTTLES = {
    0x8: "hardware slowdown",
    0x20: "too hot (software)",
    0x40: "too hot (hardware)",
    0x80: "power brake",
}
"""Bits of the clocks' event reasons that make a measurement worthless. A power cap is ordinary."""


@dataclass(frozen=True)
class Gpu:
    """One GPU. `memory_free` and `memory_total` in bytes; None: not to be had."""

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
    """All GPUs in the order of their PCI addresses. `problem`: one line why there are none."""

    gpus: tuple[Gpu, ...] = ()
    driver: str = ""
    cuda: int = 0
    """Newest CUDA that the driver knows: 12090 is 12.9; 0: unknown."""
    problem: str = ""


def snapshot(library: Any = None) -> Snapshot:
    """What is there now. Never raises; `library` stands in for pynvml in tests."""
    try:
        nvml = library or importlib.import_module("pynvml")
    except ImportError:
        return Snapshot(problem="nvidia-ml-py isn't installed: pip install nvidia-ml-py")
    try:
        with _session(nvml):
            return _look(nvml)
    except nvml.NVMLError as error:
        return Snapshot(problem=_explain(error))


def throttled(uuid: str, library: Any = None) -> tuple[str, ...]:
    """Why the GPU runs slower than it could, in words; () when it doesn't or nobody knows."""
    try:
        nvml = library or importlib.import_module("pynvml")
        with _session(nvml):
            handle = nvml.nvmlDeviceGetHandleByUUID(uuid)
            bits = _ask(nvml, "nvmlDeviceGetCurrentClocksEventReasons", handle)
            if bits is None:
                bits = _ask(nvml, "nvmlDeviceGetCurrentClocksThrottleReasons", handle)
    except Exception:  # no library, no driver, no such GPU: nothing is known
        return ()
    return tuple(text for bit, text in THROTTLES.items() if (bits or 0) & bit)


@contextmanager
def _session(nvml: Any) -> Iterator[None]:
    nvml.nvmlInit()
    try:
        yield
    finally:
        with contextlib.suppress(nvml.NVMLError):
            nvml.nvmlShutdown()


def _look(nvml: Any) -> Snapshot:
    count = nvml.nvmlDeviceGetCount()
    gpus = [gpu for index in range(count) if (gpu := _gpu(nvml, index)) is not None]
    gpus.sort(key=lambda gpu: (gpu.pci, gpu.index))
    return Snapshot(
        gpus=tuple(gpus),
        driver=_text(_ask(nvml, "nvmlSystemGetDriverVersion")),
        cuda=_ask(nvml, "nvmlSystemGetCudaDriverVersion") or 0,
        problem="" if gpus else "the NVIDIA driver shows no GPU",
    )


def _gpu(nvml: Any, index: int) -> Gpu | None:
    handle = _ask(nvml, "nvmlDeviceGetHandleByIndex", index)
    if handle is None:
        return None
    lost: list[int] = []
    memory = _ask(nvml, "nvmlDeviceGetMemoryInfo", handle, lost=lost)
    pci = _ask(nvml, "nvmlDeviceGetPciInfo", handle, lost=lost)
    mig = _ask(nvml, "nvmlDeviceGetMigMode", handle, lost=lost)
    return Gpu(
        index=index,
        name=_text(_ask(nvml, "nvmlDeviceGetName", handle, lost=lost)) or f"GPU {index}",
        uuid=_text(_ask(nvml, "nvmlDeviceGetUUID", handle, lost=lost)),
        pci="" if pci is None else _text(pci.busId),
        memory_free=None if memory is None else int(memory.free),
        memory_total=None if memory is None else int(memory.total),
        display=_ask(nvml, "nvmlDeviceGetDisplayActive", handle, lost=lost) == 1,
        mig=bool(mig and mig[0]),
        lost=bool(lost),
    )


def _ask(nvml: Any, name: str, *arguments: Any, lost: list[int] | None = None) -> Any:
    """The answer of one query, or None; a GPU that is lost leaves its status in `lost`."""
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
