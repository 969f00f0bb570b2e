"""A machine that is only curves: planned by the product's planner, and played.

Owns what the devices really cost, and what running a plan on them shows: start and end of each
phase, with noise if one likes. What is learnt from that is `learning`'s.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hetsched.device import ChunkTimes, DeviceInfo
from hetsched.memory import MemoryDemand
from hetsched.models import DeviceModel, SpeedFunction
from hetsched.planner.analysis.machine_bound import MachineDevice
from hetsched.planner.job_planner import Assignment, Candidate, JobPlan
from hetsched.plans.device_plan import Overlap
from hetsched.plans.slot_allocation import slotted
from hetsched.plans.timeline import timeline

VARIANT = "curve"
"""The only implementation that a device of curves has."""

Done = tuple[tuple[int, ChunkTimes], ...]
"""Units and times of each chunk of one device, in the order of its plan."""


@dataclass(frozen=True)
class Simulated:
    """One device. `model`: what it costs really; `demand`: its memory, no limit without a link."""

    info: DeviceInfo
    model: DeviceModel
    demand: MemoryDemand

    @property
    def overlap(self) -> Overlap:
        return Overlap.of(self.info.engines) if self.info.link else Overlap.NONE


@dataclass(frozen=True)
class Machine:
    """Devices and a load, units."""

    load: int
    devices: tuple[Simulated, ...]

    @property
    def truth(self) -> dict[str, DeviceModel]:
        """What each device costs really, by name."""
        return {one.info.name: one.model for one in self.devices}

    def candidates(self, known: Mapping[str, DeviceModel | None]) -> list[Candidate]:
        """What the planner gets to see, where so much is known of the devices."""
        return [
            Candidate(
                info=one.info,
                demand=one.demand,
                models={VARIANT: known.get(one.info.name)},
                run_counts={VARIANT: 0},
            )
            for one in self.devices
        ]

    def parts(self) -> list[MachineDevice]:
        """The devices as bounds need to know them; none whose memory holds no unit."""
        return [
            MachineDevice(one.info.name, one.model, one.demand, one.overlap)
            if one.info.link
            else MachineDevice(one.info.name, one.model, None, None)
            for one in self.devices
            if slotted(one.demand).fits([1])
        ]

    def play(
        self, plan: JobPlan, noise: float = 0.0, chance: random.Random | None = None
    ) -> dict[str, Done]:
        """What each device that has a share does.

        Parameters
        ----------
        plan : JobPlan
        noise : float
            Standard deviation of each phase's relative error.
        chance : random.Random, optional
            Needed with noise.
        """
        by_name = {one.info.name: one for one in self.devices}
        return {
            one.device: _played(one, by_name[one.device], noise, chance)
            for one in plan.assignments
        }


def seconds(done: Sequence[tuple[int, ChunkTimes]]) -> float:
    """From the first chunk's start to the last one's end."""
    return max(times.end for _, times in done) - min(times.start for _, times in done)


def makespan(played: Mapping[str, Done]) -> float:
    """Seconds until all are done; they start together."""
    return max(seconds(done) for done in played.values())


def _played(
    one: Assignment, device: Simulated, noise: float, chance: random.Random | None
) -> Done:
    model = device.model
    if not device.info.link:
        model = DeviceModel(model.total, model.compute)
    if noise and chance is not None:
        model = _noisy(model, noise, chance)
    times = timeline(one.plan, model, device.overlap)
    return tuple(
        (c.units, ChunkTimes(copy_in=c.copy_in, compute=c.compute, copy_out=c.copy_out))
        for c in times.chunks
    )


def _noisy(model: DeviceModel, noise: float, chance: random.Random) -> DeviceModel:
    def drawn(curve: SpeedFunction | None) -> SpeedFunction | None:
        return None if curve is None else _Noisy(curve, noise, chance)

    compute = _Noisy(model.compute, noise, chance)
    h2d, d2h = drawn(model.h2d), drawn(model.d2h)
    return DeviceModel(model.total, compute, h2d, d2h, duplex=model.duplex)


@dataclass(frozen=True)
class _Noisy:
    """A curve that errs by another factor each time it is asked."""

    curve: SpeedFunction
    noise: float
    chance: random.Random

    def time(self, x: Any, /) -> Any:
        seconds = np.asarray(self.curve.time(x), dtype=float)
        factors = [self.chance.gauss(0.0, self.noise) for _ in range(seconds.size)]
        return seconds * np.exp(np.reshape(factors, seconds.shape))

    def speed(self, x: Any, /) -> Any:
        return x / self.time(x)
