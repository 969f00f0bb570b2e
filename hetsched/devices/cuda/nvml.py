"""Queries NVML: identity, memory and throttling of the GPUs, driver. Creates no CUDA context.

A query that this GPU, driver or container doesn't support yields None and affects no other. All
calls are made by one thread, which keeps NVML open: opening takes tens of milliseconds, and calls
can stall while another process pins memory.
"""

from __future__ import annotations

import contextlib
import importlib
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from hetsched.devices.cuda.faults import NVML_ABSENT, NVML_LOST

T = TypeVar("T")

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
    """One GPU, or an instance of one with MIG on.

    Attributes
    ----------
    index : int
        Of the whole GPU, in order of PCI addresses.
    memory_free, memory_total : int or None, bytes
        None if not available.
    mig : bool
        It is divided; without an instance, CUDA can't use it.
    """

    index: int
    name: str
    uuid: str
    pci: str = ""
    memory_free: int | None = None
    memory_total: int | None = None
    display: bool = False
    mig: bool = False
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


@dataclass(frozen=True)
class _Query:
    """`deadline`: when nobody waits for `answer` any more, monotonic seconds."""

    function: Callable[[Any], Any]
    deadline: float
    reopen: bool
    answer: Future[Any]


class NvmlThread:
    """Runs queries one after the other; started with the first.

    Parameters
    ----------
    library : module or None
        Replaces pynvml in tests.
    """

    def __init__(self, library: Any = None) -> None:
        self._library = library
        self._is_open = False
        self._queries: queue.SimpleQueue[_Query] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._overdue: Future[Any] | None = None
        """The query that missed its deadline last."""

    def ask(self, function: Callable[[Any], T], seconds: float, *, reopen: bool = False) -> T:
        """Return ``function(nvml)``, called on this thread. Thread-safe.

        Parameters
        ----------
        reopen : bool
            Start with a new session: one doesn't see GPUs that came later.

        Raises
        ------
        TimeoutError
            It takes longer than `seconds`, or an earlier call still hangs.
        ImportError
            There is no library. An error of the library is raised as it is.
        """
        self._start()
        if self._overdue is not None and not self._overdue.done():
            raise TimeoutError("an earlier call of NVML hasn't returned")
        query = _Query(function, time.monotonic() + seconds, reopen, Future())
        self._queries.put(query)
        try:
            answer: T = query.answer.result(seconds)
        except TimeoutError:
            if not query.answer.done():
                self._overdue = query.answer
            raise
        return answer

    def _start(self) -> None:
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="nvml", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        while True:
            query = self._queries.get()
            if time.monotonic() >= query.deadline:
                query.answer.set_exception(TimeoutError())
                continue
            try:
                query.answer.set_result(self._answer(query))
            except BaseException as error:
                self._close()  # a driver that was reloaded needs a new session
                query.answer.set_exception(error)

    def _answer(self, query: _Query) -> Any:
        if query.reopen:
            self._close()
        if self._library is None:
            self._library = importlib.import_module("pynvml")
        if not self._is_open:
            self._library.nvmlInit()
            self._is_open = True
        return query.function(self._library)

    def _close(self) -> None:
        if self._is_open:
            self._is_open = False
            with contextlib.suppress(Exception):
                self._library.nvmlShutdown()


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
