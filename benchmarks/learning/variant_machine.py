"""Equal cores that run several variants, each of which slows its neighbours down differently.

A core's pace depends on its own variant and on what the others run at that moment, as with shared
caches and memory: the machine is played event by event. Chunks are noisy, and a few of them are
interrupted.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from hetsched.device import ChunkTimes, DeviceInfo
from hetsched.memory import MemoryDemand
from hetsched.models import Constant, DeviceModel
from hetsched.planner.job_planner import Assignment, JobPlan
from hetsched.simulate.machine import ChunkTimings, SimulatedDevice, SimulatedMachine

Pace = Callable[[str, tuple[str, ...]], float]
"""(variant, variants that run on the other cores now) -> seconds per unit."""

DEMAND = MemoryDemand(input_bytes=1, work_bytes=0, output_bytes=1)


@dataclass(frozen=True)
class Disturbance:
    """Chunks that take longer: each with a probability, by a factor."""

    probability: float = 0.0
    factor: float = 1.0


@dataclass(frozen=True)
class VariantMachine(SimulatedMachine):
    """Equal cores with several variants. Without noise nothing is disturbed."""

    pace: Pace = field(default=lambda variant, others: 1.0, kw_only=True)
    disturbance: Disturbance = field(default=Disturbance(), kw_only=True)

    def play(
        self, plan: JobPlan, noise: float = 0.0, rng: random.Random | None = None
    ) -> dict[str, ChunkTimings]:
        """Run `plan`, chunk by chunk on all cores at once. See `SimulatedMachine.play`."""
        cores = [_RacingCore(assignment) for assignment in plan.assignments]
        now = 0.0
        for core in cores:
            core.start(now, self._factor(noise, rng))
        while busy := [core for core in cores if core.variant]:
            paces = {
                core.name: self.pace(
                    core.variant, tuple(other.variant for other in busy if other is not core)
                )
                for core in busy
            }
            step = min(core.remaining * paces[core.name] for core in busy)
            now += step
            for core in busy:
                core.advance(step / paces[core.name])
                if core.remaining <= 0:
                    core.finish(now)
                    core.start(now, self._factor(noise, rng))
        return {core.name: tuple(core.finished) for core in cores}

    def _factor(self, noise: float, rng: random.Random | None) -> float:
        """Return the ratio of a chunk's time to the usual one."""
        if not noise or rng is None:
            return 1.0
        is_disturbed = rng.random() < self.disturbance.probability
        factor = self.disturbance.factor if is_disturbed else 1.0
        return factor * max(0.1, 1.0 + rng.gauss(0.0, noise))


class _RacingCore:
    """A core that computes its chunks one after the other. `variant`: "" when it is done."""

    def __init__(self, assignment: Assignment) -> None:
        self.name = assignment.device
        self.variant = ""
        self.remaining = 0.0
        self.finished: list[tuple[int, ChunkTimes]] = []
        self._variants = assignment.variants
        self._chunks = iter(assignment.chunks)
        self._started = 0.0
        self._warm: set[int] = set()

    def start(self, now: float, factor: float) -> None:
        """Start the next chunk, which takes `factor` times as long as usual."""
        chunk = next(self._chunks, None)
        if chunk is None:
            self.variant = ""
            return
        self._chunk, self._started = chunk, now
        self.variant = self._variants[chunk.kernel]
        self.remaining = chunk.count * factor

    def advance(self, units: float) -> None:
        """Compute `units`, less a rounding error at the end of the chunk."""
        self.remaining -= units
        if self.remaining < 1e-9:
            self.remaining = 0.0

    def finish(self, now: float) -> None:
        """Record the chunk."""
        kernel = self._chunk.kernel
        times = ChunkTimes(
            compute=(self._started, now), kernel=kernel, cold=kernel not in self._warm
        )
        self._warm.add(kernel)
        self.finished.append((self._chunk.count, times))


def equal_cores(
    count: int,
    load: int,
    variants: tuple[str, ...],
    pace: Pace,
    disturbance: Disturbance | None = None,
) -> VariantMachine:
    """Return a machine of `count` equal cores."""
    model = DeviceModel(Constant(1.0), Constant(1.0))
    devices = tuple(
        SimulatedDevice(DeviceInfo(name=f"cpu{i}", kind="cpu", identity="core"), model, DEMAND)
        for i in range(count)
    )
    return VariantMachine(
        load, devices, variants, pace=pace, disturbance=disturbance or Disturbance()
    )
