"""Emulated devices: an accelerator with configured costs, or a slowed core."""

from __future__ import annotations

import ctypes
import random
import time

import msgspec

from hetsched.config import DeviceConfig
from hetsched.device import Chunk, ChunkTimes, DeviceInfo
from hetsched.devices.accelerator.device import Accelerator
from hetsched.devices.accelerator.simulated import (
    Costs,
    RealTime,
    SimulatedRuntime,
    VirtualTime,
)
from hetsched.devices.base import Device, DeviceJob, IterativeJob, StageExecutor
from hetsched.devices.cpu.device import CoreClock, CpuDevice

MAX_BACK_TO_BACK_SECONDS = 500e-6
"""A computation that begins so soon after the previous one's modelled end counts from that end:
oversleeping and sending are artefacts of the emulation and must not add up. Arbitrary."""
STALL_FACTOR = 20.0
"""Factor by which a stall lengthens an operation."""
_PR_SET_TIMERSLACK = 29


def open_device(info: DeviceInfo, config: DeviceConfig) -> Device:
    """Open the emulated device that `config` describes; called on the thread that drives it."""
    if config.clock == "real":
        ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)  # else sleep is 50 us too long
    return EmulatedGpu(info, config) if config.link else CpuDevice(info, ModelledClock(config))


def modelled_costs(config: DeviceConfig, job: DeviceJob, parts: int = 1) -> Costs:
    """Return the costs of a job's operations. A kernel computes one of `parts` of its units.

    Which operations stall depends on the seed and on how many of their phase came before.
    """
    workload, params = job.workload, job.params  # not the job, whose arrays would be kept
    costs = {"h2d": config.h2d, "compute": config.compute, "d2h": config.d2h}
    chances = {phase: random.Random(f"{config.seed}/{phase}") for phase in costs}

    def seconds(phase: str, units: int, nbytes: int) -> float:
        cost = costs[phase]
        if cost is None:
            return 0.0
        flops = workload.flops(params, units) / units
        modelled = cost.seconds(units, nbytes / units, flops)
        if phase == "compute":
            modelled /= parts
        is_stalled = config.stalls > 0 and chances[phase].random() < config.stalls
        return modelled * STALL_FACTOR if is_stalled else modelled

    return seconds


class EmulatedGpu(Accelerator):
    """An accelerator on a simulated runtime with the configured memory, engines and costs.

    It computes with the CPU variant that the job names. `close` ends its threads.
    """

    def __init__(self, info: DeviceInfo, config: DeviceConfig) -> None:
        self._config = config
        kept = (RealTime if config.clock == "real" else VirtualTime)(config.engines, config.duplex)
        memory = config.memory_bytes() or 0
        self._simulated = SimulatedRuntime(memory, kept)
        self._late = 0
        super().__init__(info, self._simulated)

    def close(self) -> None:
        super().close()
        self._simulated.time.close()

    def prepare(self, job: DeviceJob | None) -> None:
        super().prepare(None)
        if job is not None:
            self._simulated.restart(modelled_costs(self._config, job), is_host_instant=True)
            super().prepare(job)

    def prepare_iterations(self, job: IterativeJob) -> StageExecutor:
        """Make the kernels of all stages, which have equal parts of an iteration's time."""
        self.prepare(None)
        parts = max(1, len(job.workload.iteration(job.job.params)))
        costs = modelled_costs(self._config, job.job, parts)
        self._simulated.restart(costs, is_host_instant=False)
        return super().prepare_iterations(job)

    def wait(self, chunk: Chunk) -> ChunkTimes:
        times = super().wait(chunk)
        before, self._late = self._late, self._simulated.time.late
        return msgspec.structs.replace(times, late=self._late - before)


class ModelledClock(CoreClock):
    """A core's, on which computations take modelled time: computed, or real by sleeping.

    Computed time starts at 0 with each job. Work that really takes longer is late.
    """

    def __init__(self, config: DeviceConfig, free: list[float] | None = None) -> None:
        super().__init__(has_own_core=False)
        self._config = config
        self._is_virtual = config.clock == "virtual"
        self._costs: Costs | None = None
        self._free = [0.0] if free is None else free
        """When the core is, which computes one chunk at a time, whichever job it belongs to."""

    def begin(self, job: DeviceJob | None, parts: int = 1) -> None:
        self._costs = None if job is None else modelled_costs(self._config, job, parts)
        if self._is_virtual:
            self._free[0] = 0.0

    def now(self) -> float:
        if self._is_virtual:
            return self._free[0]
        now = super().now()
        is_back_to_back = 0 <= now - self._free[0] < MAX_BACK_TO_BACK_SECONDS
        return self._free[0] if is_back_to_back else now

    def end_of(self, units: int, start: float) -> tuple[float, int]:
        assert self._costs is not None, "a job has begun"
        end = start + self._costs("compute", units, 0)
        remaining = 0.0 if self._is_virtual else end - time.monotonic()
        if remaining > 0:
            time.sleep(remaining)
        self._free[0] = end = end if remaining >= 0 else time.monotonic()
        return end, int(remaining < 0)

    def beside(self) -> ModelledClock:
        return ModelledClock(self._config, self._free)
