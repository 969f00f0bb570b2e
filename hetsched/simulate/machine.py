"""A simulated machine: planned by the product's planner, run in virtual time.

Owns the true costs of the devices and the timings of a plan on them: start and end of each phase,
with optional noise. Learning from these is in `learning`.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hetsched.device import ChunkTimes, DeviceInfo
from hetsched.memory import MemoryDemand
from hetsched.models import DeviceModel, SpeedFunction
from hetsched.planner.job_planner import plan_job
from hetsched.planner.records import Assignment, Candidate, JobPlan
from hetsched.planner.what_if import bound_of_plan
from hetsched.plans import Overlap, timeline
from hetsched.simulate.curves import Noisy

VARIANT = "profile"
"""The only variant of a simulated device."""

ChunkTimings = tuple[tuple[int, ChunkTimes], ...]
"""Units and times of each chunk of one device, in the order of its plan."""


@dataclass(frozen=True)
class SimulatedDevice:
    """One device of a simulated machine."""

    info: DeviceInfo
    model: DeviceModel  # its true costs
    demand: MemoryDemand  # without a limit if the device has no link

    @property
    def name(self) -> str:
        return self.info.name

    @property
    def overlap(self) -> Overlap:
        return Overlap.of(self.info.engines) if self.info.link else Overlap.NONE


@dataclass(frozen=True)
class SimulatedMachine:
    """Devices and a load, units. `variants`: of every device."""

    load: int
    devices: tuple[SimulatedDevice, ...]
    variants: tuple[str, ...] = (VARIANT,)

    @property
    def true_models(self) -> dict[str, DeviceModel]:
        """Return the true costs of each device, by name."""
        return {device.name: device.model for device in self.devices}

    def candidates(self, models: Mapping[str, DeviceModel | None]) -> list[Candidate]:
        """Return the devices as candidates, with `models` instead of the true costs."""
        return [
            Candidate(
                info=device.info,
                demand=device.demand,
                models={VARIANT: models.get(device.name)},
                run_counts={VARIANT: 0},
            )
            for device in self.devices
        ]

    def bound(self) -> float:
        """Return the least seconds of any split over the devices whose memory holds a unit."""
        bound = bound_of_plan(plan_job(self.load, self.candidates(self.true_models)))
        assert bound is not None, "all devices have models"
        return bound

    def play(
        self, plan: JobPlan, noise: float = 0.0, rng: random.Random | None = None
    ) -> dict[str, ChunkTimings]:
        """Run `plan`; return the timings of each device that has a share.

        `noise`: standard deviation of each phase's relative error, drawn from `rng`.
        """
        by_name = {device.name: device for device in self.devices}
        return {
            assignment.device: _play(assignment, by_name[assignment.device], noise, rng)
            for assignment in plan.assignments
        }


def device_seconds(chunks: Sequence[tuple[int, ChunkTimes]]) -> float:
    """Return the seconds from the start of the first chunk to the end of the last one."""
    return max(times.end for _, times in chunks) - min(times.start for _, times in chunks)


def makespan(timings: Mapping[str, ChunkTimings]) -> float:
    """Return the seconds until all devices are done; they start together."""
    return max(device_seconds(chunks) for chunks in timings.values())


def _play(
    assignment: Assignment, device: SimulatedDevice, noise: float, rng: random.Random | None
) -> ChunkTimings:
    model = device.model
    if not device.info.link:
        model = DeviceModel(model.total, model.compute)
    if noise and rng is not None:

        def noisy(curve: SpeedFunction | None) -> Any:
            return curve and Noisy(curve, lambda n: [rng.gauss(0.0, noise) for _ in range(n)])

        model = replace(
            model, compute=noisy(model.compute), h2d=noisy(model.h2d), d2h=noisy(model.d2h)
        )
    times = timeline(assignment.plan, model, device.overlap)
    return tuple(
        (
            chunk.units,
            ChunkTimes(copy_in=chunk.copy_in, compute=chunk.compute, copy_out=chunk.copy_out),
        )
        for chunk in times.chunks
    )
