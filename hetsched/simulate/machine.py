"""A simulated machine, on the product's planner: run in virtual time, and learnt from nothing.

Owns the true costs of the devices and the timings of a plan on them: start and end of each phase,
with optional noise. `learn` is the product's loop of planning, running and learning; only the
source of the timings differs.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hetsched.device import ChunkTimes, DeviceInfo, Timeline
from hetsched.memory import MemoryDemand
from hetsched.models import DeviceModel, SpeedFunction
from hetsched.models.history import History
from hetsched.models.races import RaceRecord
from hetsched.models.samples import CoRunners
from hetsched.planner import learning
from hetsched.planner.explanation import bound_of_plan
from hetsched.planner.job_planner import plan_job
from hetsched.planner.neighbours import co_runners_of, possible_models
from hetsched.planner.planner import Planner
from hetsched.planner.records import Assignment, Candidate, JobPlan
from hetsched.planner.totals import PlanCache
from hetsched.plans import Overlap, timeline
from hetsched.simulate.curves import Noisy

VARIANT = "profile"
"""The only variant of a simulated device."""

ChunkTimings = tuple[tuple[int, ChunkTimes], ...]
"""Units and times of each chunk of one device, in the order of its plan."""


@dataclass(frozen=True)
class SimulatedDevice:
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

    def candidates(self, models: Mapping[str, DeviceModel] | None = None) -> list[Candidate]:
        """Return the devices as candidates, with their true costs, or with `models` instead."""
        if models is None:
            models = {device.name: device.model for device in self.devices}
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
        bound = bound_of_plan(ideal_plan(self))
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
    return chunk_timings(timeline(assignment.plan, model, device.overlap))


def chunk_timings(line: Timeline) -> ChunkTimings:
    return tuple(
        (
            chunk.units,
            ChunkTimes(copy_in=chunk.copy_in, compute=chunk.compute, copy_out=chunk.copy_out),
        )
        for chunk in line.chunks
    )


def ideal_plan(machine: SimulatedMachine) -> JobPlan:
    return plan_job(machine.load, machine.candidates())


# ---- learning


@dataclass(frozen=True)
class LearningRun:
    """One run of the learning loop; seconds."""

    plan: JobPlan
    measured: float  # noise included
    noiseless: float


def learn(
    machine: SimulatedMachine,
    runs: int,
    noise: float,
    seed: int,
    *,
    machine_in: Callable[[int], SimulatedMachine] | None = None,
) -> list[LearningRun]:
    """Run the same load repeatedly, starting without measurements.

    `noise`: standard deviation of the relative error of each phase of each chunk. `machine_in`:
    the machine in each run, from 0, with the devices of `machine` but perhaps other costs, or
    another load: another kind of job, planned by the same models.
    """
    rng = random.Random(seed)
    infos = {device.name: device.info for device in machine.devices}
    histories: Histories = defaultdict(History)
    races: defaultdict[str, RaceRecord] = defaultdict(RaceRecord)
    cache, planners = PlanCache(), dict[int, Planner]()
    done = []
    for number in range(runs):
        present = machine_in(number) if machine_in else machine
        planner = planners.setdefault(present.load, Planner(present.load, cache))
        plan = planner.next(_learnt(machine, histories, races))
        timings = present.play(plan, noise, rng)
        devices = {
            a.device: learning.DeviceRun(a, infos[a.device], timings.get(a.device, ()))
            for a in plan.assignments
        }
        run = learning.Run(plan, devices, [*infos.values()])
        lessons = learning.learn(run)
        for key, samples in lessons.samples.items():
            histories[key].add(samples)
        for identity, race in lessons.races.items():
            races[identity] = races[identity].with_race(race)
        planner.report(plan, run.paces)
        done.append(LearningRun(plan, makespan(timings), makespan(present.play(plan))))
    return done


Histories = defaultdict[tuple[str, str, CoRunners], History]
"""By device, variant and co-runners."""


def _learnt(
    machine: SimulatedMachine, histories: Histories, races: defaultdict[str, RaceRecord]
) -> Sequence[Candidate]:
    beside = co_runners_of([device.info for device in machine.devices])
    candidates = []
    for candidate in machine.candidates({}):
        models: dict[CoRunners, dict[str, DeviceModel]] = {}
        runs: dict[CoRunners, dict[str, int]] = {}
        for (device, variant, co_runners), history in histories.items():
            model = history.model(candidate.info.link)
            if device == candidate.info.name and model is not None:
                models.setdefault(co_runners, {})[variant] = model
                runs.setdefault(co_runners, {})[variant] = history.runs
        with_models = replace(
            candidate,
            models=dict.fromkeys(machine.variants),
            run_counts={
                v: sum(counts.get(v, 0) for counts in runs.values()) for v in machine.variants
            },
            races=races[candidate.info.identity],
            models_beside=possible_models(models, runs),
            runs_beside=runs,
        )
        candidates.append(with_models.beside(beside[candidate.info.name]))
    return candidates
