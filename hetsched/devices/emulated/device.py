"""Emulated devices: an accelerator with configured costs, or a slowed core."""

from __future__ import annotations

import itertools
import random
import time

import msgspec

from hetsched.config import Cost, DeviceConfig
from hetsched.device import Chunk, ChunkTimes, DeviceInfo
from hetsched.devices.accelerator.device import Accelerator
from hetsched.devices.accelerator.simulated import (
    RealTime,
    SimulatedRuntime,
    VirtualTime,
    precise_sleep,
)
from hetsched.devices.base import Device, DeviceJob, IterativeJob, StageExecutor
from hetsched.devices.cpu.device import CpuDevice
from hetsched.devices.cpu.stages import CoreClock
from hetsched.errors import InternalError

MAX_BACK_TO_BACK_SECONDS = 500e-6
"""A computation that begins so soon after the previous one's modelled end counts from that end:
oversleeping and sending are artefacts of the emulation and must not add up. Arbitrary."""
STALL_FACTOR = 20.0
"""Factor by which a stall lengthens an operation."""


def open_device(info: DeviceInfo, config: DeviceConfig) -> Device:
    """Open the emulated device that `config` describes; called on the thread that drives it."""
    virtual = config.clock == "virtual"
    if not virtual:
        precise_sleep()
    if not config.link:
        return CpuDevice(info, VirtualCoreClock(config) if virtual else RealCoreClock(config))
    return EmulatedGpu(info, config)


class ModelledCosts:
    """Modelled seconds of the operations of one job.

    Phases are "h2d", "compute" and "d2h".

    Parameters
    ----------
    config : DeviceConfig
    job : DeviceJob
    """

    def __init__(self, config: DeviceConfig, job: DeviceJob) -> None:
        self._costs = {
            "h2d": config.h2d,
            "compute": config.compute,
            "d2h": config.d2h,
        }
        self._job = job
        self._seed = config.seed
        self._stall_chance = config.stalls

    def seconds(self, phase: str, number: int, units: int, nbytes: int = 0) -> float:
        """Return the seconds of an operation, which copies `nbytes`.

        Whether it stalls depends on its number, not on earlier ones.
        """
        seconds = self._modelled(phase, units, nbytes)
        if self._stall_chance > 0:
            draw = random.Random(f"{self._seed}/{number}/{phase}").random()
            return seconds * STALL_FACTOR if draw < self._stall_chance else seconds
        return seconds

    def _modelled(self, phase: str, units: int, nbytes: int) -> float:
        cost: Cost | None = self._costs[phase]
        if cost is None:
            return 0.0
        flops = self._job.workload.flops(self._job.params, units) / units
        return cost.seconds(units, nbytes / units, flops)


class EmulatedGpu(Accelerator):
    """An accelerator on a simulated runtime with the configured memory, engines and costs.

    It computes with the CPU variant that the job names. `close` ends its threads.
    """

    def __init__(self, info: DeviceInfo, config: DeviceConfig) -> None:
        self._config = config
        engines, duplex = config.engines, config.duplex
        is_real = config.clock == "real"
        time = RealTime(engines, duplex) if is_real else VirtualTime(engines, duplex)
        self._simulated = SimulatedRuntime(
            config.memory_bytes() or 0, time=time, needs_warm_up=False
        )
        self._costs: ModelledCosts | None = None
        self._late = 0
        super().__init__(info, self._simulated)

    def close(self) -> None:
        super().close()
        self._simulated.close()

    def prepare(self, job: DeviceJob | None) -> None:
        super().prepare(None)
        self._costs = None
        if job is not None:
            self._begin(job, is_host_instant=True)
            super().prepare(job)

    def prepare_iterations(self, job: IterativeJob) -> StageExecutor:
        """Make the kernels of all stages, which have equal parts of an iteration's time."""
        self.prepare(None)
        stages = job.workload.iteration(job.job.params)
        self._begin(job.job, is_host_instant=False, parts=max(1, len(stages)))
        return self._stages(job)

    def _begin(self, job: DeviceJob, is_host_instant: bool, parts: int = 1) -> None:
        """Begin the time of a job, each of whose kernels computes one of `parts` of its units."""
        self._costs = ModelledCosts(self._config, job)
        numbers = {phase: itertools.count() for phase in ("h2d", "compute", "d2h")}

        def seconds(phase: str, units: int, nbytes: int) -> float:
            assert self._costs is not None
            modelled = self._costs.seconds(phase, next(numbers[phase]), units, nbytes)
            return modelled / parts if phase == "compute" else modelled

        self._simulated.restart(seconds, is_host_instant)

    def wait(self, chunk: Chunk) -> ChunkTimes:
        times = super().wait(chunk)
        assert self._costs is not None
        before, self._late = self._late, self._simulated.time.late
        return msgspec.structs.replace(times, late=self._late - before)


# ---- cores, which have no link: computations take modelled time


class _ModelledCoreClock(CoreClock):
    def __init__(self, config: DeviceConfig) -> None:
        super().__init__(has_own_core=False)
        self._config = config
        self._costs: ModelledCosts | None = None
        self._parts = 1

    def begin(self, job: DeviceJob | None, parts: int = 1) -> None:
        self._costs = None if job is None else ModelledCosts(self._config, job)
        self._parts = parts

    def _seconds(self, number: int, units: int) -> float:
        assert self._costs is not None
        return self._costs.seconds("compute", number, units) / self._parts


class RealCoreClock(_ModelledCoreClock):
    """A clock that sleeps until the modelled end; work that takes longer is late.

    `free`: when the core is, which computes one chunk at a time, whichever job it belongs to.
    """

    _last_end = 0.0

    def __init__(self, config: DeviceConfig, free: list[float] | None = None) -> None:
        super().__init__(config)
        self._free = [0.0] if free is None else free

    def now(self) -> float:
        now = time.monotonic()
        is_back_to_back = 0 <= now - self._last_end < MAX_BACK_TO_BACK_SECONDS
        return self._last_end if is_back_to_back else now

    def end_of(self, number: int, units: int, start: float) -> tuple[float, int]:
        end = self._free[0] = max(start, self._free[0]) + self._seconds(number, units)
        remaining = end - time.monotonic()
        if remaining > 0:
            time.sleep(remaining)
        else:
            end = time.monotonic()
        self._last_end = end
        return end, int(remaining < 0)

    def beside(self) -> RealCoreClock:
        return RealCoreClock(self._config, self._free)


class VirtualCoreClock(_ModelledCoreClock):
    """A clock with computed time, which starts at 0 with each job."""

    _now = 0.0

    def begin(self, job: DeviceJob | None, parts: int = 1) -> None:
        super().begin(job, parts)
        self._now = 0.0

    def now(self) -> float:
        return self._now

    def end_of(self, number: int, units: int, start: float) -> tuple[float, int]:
        self._now = start + self._seconds(number, units)
        return self._now, 0

    def beside(self) -> VirtualCoreClock:
        raise InternalError("the times of a virtual clock are those of one job")
