"""A job that a device is prepared for: its workload, its arrays, its pipeline and its tasks."""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from hetsched.device import Chunk, ChunkTimes, DeviceInfo
from hetsched.device_process.attachments import HostArrays
from hetsched.device_process.iterating.iterative_run import IterativeRun
from hetsched.device_process.known_workloads import KnownWorkload
from hetsched.device_process.pipeline import Pipeline
from hetsched.device_process.shared_tails import DeviceTail
from hetsched.devices.base import Device, DeviceJob
from hetsched.paths import cache_dir
from hetsched.plans.slot_allocation import SlotAllocator, slot_bytes
from hetsched.transport.device_messages import Prepare
from hetsched.workload import BaseWorkload, Iterative

MAX_KERNELS = 1000
"""Kernels whose first chunk is remembered. Arbitrary."""


class StepFailed(Exception):
    """A job can't advance, with the reason as ``__cause__``; no chunk failed."""


@dataclass(frozen=True, eq=False)
class HeldJob:
    """A job that a device holds.

    Attributes
    ----------
    number : int
        `Prepare.job`.
    tasks : deque of iterator
        Filling, checking and epochs, after the chunks; each step handles one block.
    tail : DeviceTail or None
        The tail that it shares with other devices.
    run : IterativeRun or None
        Of an iterative job, whose epochs are tasks.
    """

    number: int
    workload: BaseWorkload
    params: Any
    arrays: HostArrays
    pipeline: Pipeline
    tasks: deque[Iterator[None]] = field(default_factory=deque)
    tail: DeviceTail | None = None
    run: IterativeRun | None = None

    @property
    def is_busy(self) -> bool:
        """Whether it has chunks, may take some, or has tasks."""
        return self.pipeline.busy or self._is_tail_open or bool(self.tasks)

    @property
    def _is_tail_open(self) -> bool:
        return self.tail is not None and self.tail.is_open

    def step(self) -> None:
        """Advance by one chunk, or by one block of a task.

        Raises
        ------
        ChunkFailed, DeviceFault
        StepFailed
            All tasks are dropped.
        """
        if self.pipeline.busy:
            self.pipeline.step()
            return
        if self._is_tail_open:
            self._take_chunk()
            return
        try:
            next(self.tasks[0])
        except StopIteration:
            self.tasks.popleft()
        except BaseException as error:  # also what only a plug-in would raise
            self.tasks.clear()
            raise StepFailed(self.number) from error

    def _take_chunk(self) -> None:
        """Start the next chunk of the tail.

        Only when it can start, so that no chunk waits here while another core is idle.
        """
        assert self.tail is not None, "the caller has checked it"
        chunk = self.tail.take()
        if chunk is not None:
            self.pipeline.add([chunk])
            self.pipeline.step()


class ColdKernels:
    """Detection of the first chunk of each kernel in this process, which is slow.

    It loads code and fills caches.
    """

    def __init__(self) -> None:
        self._warm: set[tuple[str, bytes, str]] = set()

    def is_first_chunk(self, command: Prepare, kernel_number: int) -> bool:
        """Return whether this kernel has no reported chunk yet. `kernel_number`: of the chunk."""
        variant = (command.variant, *command.rivals)[kernel_number]
        kernel = (command.workload, command.params, variant)
        if kernel in self._warm:
            return False
        if len(self._warm) >= MAX_KERNELS:
            self._warm.clear()
        self._warm.add(kernel)
        return True


def device_job(
    command: Prepare,
    info: DeviceInfo,
    known_workload: KnownWorkload,
    arrays: HostArrays,
    say: Callable[[str], None],
    reject: Callable[[str, Exception], None],
) -> DeviceJob:
    """Return the job of `command` in the form that device `info` requires.

    `reject`: as `DeviceJob.reject`.
    """
    inputs, outputs = arrays
    return DeviceJob(
        workload=known_workload.workload,
        params=known_workload.params,
        variant=command.variant,
        inputs=inputs,
        outputs=outputs,
        chunk=command.chunk,
        demand=known_workload.demand,
        memory=command.memory,
        slots=command.slots if info.link else 1,
        threads=info.threads,
        cache=_cache_folder(),
        say=say,
        rivals=command.rivals,
        reject=reject,
    )


def build_pipeline(
    device: Device,
    info: DeviceInfo,
    command: Prepare,
    job: DeviceJob,
    on_done: Callable[[Chunk, ChunkTimes], None],
) -> Pipeline:
    """Return the pipeline of a prepared job; one without slots if it is iterative: no chunks come.

    Parameters
    ----------
    on_done : callable
        Called with each finished chunk, in order.
    """
    has_slots = info.link and not isinstance(job.workload, Iterative)
    slots = SlotAllocator(
        lambda units: slot_bytes(job.demand, units),
        command.memory if has_slots else 0,
        job.slots,
        command.ring,
        job.chunk,
        command.sizes,
    )
    depth = min(job.slots + 1, command.window) if info.link else 1
    return Pipeline(device, slots, depth, on_done)


@functools.cache
def _cache_folder() -> str:
    """Return the cache folder, created once per process: checking each time costs 0.1 ms."""
    folder = cache_dir()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return str(folder)
