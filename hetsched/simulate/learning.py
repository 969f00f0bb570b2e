"""Learning a simulated machine from scratch: the product's loop of planning, running, learning.

Its `Planner` makes the plans, and `planner.learning` learns from the runs. Only the source of the
timings differs.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from hetsched.models import DeviceModel
from hetsched.models.history import History
from hetsched.models.races import RaceRecord
from hetsched.models.samples import CoRunners
from hetsched.planner import learning
from hetsched.planner.job_planner import plan_job
from hetsched.planner.learning import DeviceRun, Run
from hetsched.planner.neighbours import co_runners_of, possible_models
from hetsched.planner.planner import Planner
from hetsched.planner.records import Candidate, JobPlan
from hetsched.planner.totals import PlanCache
from hetsched.simulate.machine import SimulatedMachine, makespan


@dataclass(frozen=True)
class LearningRun:
    """One run of the learning loop; seconds."""

    plan: JobPlan
    measured: float  # noise included
    noiseless: float


def ideal_plan(machine: SimulatedMachine) -> JobPlan:
    """Make the product's plan for a machine with exactly known costs."""
    return plan_job(machine.load, machine.candidates(machine.true_models))


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
    loop = _LearningLoop(machine, noise, seed)
    return [loop.run(machine_in(run) if machine_in else machine) for run in range(runs)]


class _LearningLoop:
    def __init__(self, machine: SimulatedMachine, noise: float, seed: int) -> None:
        self._machine = machine
        self._noise = noise
        self._random = random.Random(seed)
        self._infos = {device.name: device.info for device in machine.devices}
        self._histories: defaultdict[tuple[str, str, CoRunners], History] = defaultdict(History)
        self._races: defaultdict[str, RaceRecord] = defaultdict(RaceRecord)
        self._cache = PlanCache()
        self._planners: dict[int, Planner] = {}

    def run(self, machine: SimulatedMachine) -> LearningRun:
        if machine.load not in self._planners:
            self._planners[machine.load] = Planner(machine.load, self._cache)
        planner = self._planners[machine.load]
        plan = planner.next(self._candidates())
        timings = machine.play(plan, self._noise, self._random)
        devices = {
            a.device: DeviceRun(a, self._infos[a.device], timings.get(a.device, ()))
            for a in plan.assignments
        }
        run = Run(plan, devices, [*self._infos.values()])
        lessons = learning.learn(run)
        for key, samples in lessons.samples.items():
            self._histories[key].add(samples)
        for identity, race in lessons.races.items():
            self._races[identity] = self._races[identity].with_race(race)
        planner.report(plan, run.paces)
        return LearningRun(plan, makespan(timings), makespan(machine.play(plan)))

    def _candidates(self) -> Sequence[Candidate]:
        beside = co_runners_of([*self._infos.values()])
        return [
            self._with_models(candidate).beside(beside[candidate.info.name])
            for candidate in self._machine.candidates({})
        ]

    def _with_models(self, candidate: Candidate) -> Candidate:
        name, variants = candidate.info.name, self._machine.variants
        models: dict[CoRunners, dict[str, DeviceModel]] = {}
        runs: dict[CoRunners, dict[str, int]] = {}
        for (device, variant, beside), history in self._histories.items():
            model = history.model(candidate.info.link)
            if device == name and model is not None:
                models.setdefault(beside, {})[variant] = model
                runs.setdefault(beside, {})[variant] = history.runs
        return replace(
            candidate,
            models=dict.fromkeys(variants),
            run_counts={v: sum(counts.get(v, 0) for counts in runs.values()) for v in variants},
            races=self._races[candidate.info.identity],
            models_beside=possible_models(models, runs),
            runs_beside=runs,
        )
