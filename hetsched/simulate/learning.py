"""Learning a simulated machine from scratch: a loop of planning, running and learning.

The loop is the product's: its `Planner` makes the plans, and tries what isn't known well,
and its `History` makes models of chunk timings. Only the source of the timings differs.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from hetsched.models.call_cost import call_samples
from hetsched.models.evidence.races import RaceRecord
from hetsched.models.evidence.run_medians import run_medians
from hetsched.models.evidence.samples import Sample, duplex_samples, run_samples, without_total
from hetsched.planner.job_planner import Assignment, Candidate, JobPlan, plan_job
from hetsched.planner.neighbours import (
    co_runners_end,
    co_runners_in_run,
    co_runners_of,
)
from hetsched.planner.planner import Planner
from hetsched.planner.races import race_of, variant_samples
from hetsched.planner.totals import PlanCache
from hetsched.planner.variants import pooled_models
from hetsched.simulate.histories import CoRunnerHistories, by_co_runners
from hetsched.simulate.machine import (
    ChunkTimings,
    SimulatedMachine,
    device_seconds,
    makespan,
)


@dataclass(frozen=True)
class LearningRun:
    """One run of the learning loop.

    Attributes
    ----------
    plan : JobPlan
    measured : float, seconds
        Noise included.
    noiseless : float, seconds
        The same plan without noise.
    """

    plan: JobPlan
    measured: float
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
    uses_measured_total: bool = False,
    machine_in: Callable[[int], SimulatedMachine] | None = None,
) -> list[LearningRun]:
    """Run the same load repeatedly, starting without measurements.

    Parameters
    ----------
    machine : SimulatedMachine
    runs : int
    noise : float
        Standard deviation of the relative error of each phase of each chunk.
    seed : int
    uses_measured_total : bool
        Whether shares are based on the measured times of the latest shares, as by Ilic & Sousa.
    machine_in : callable (run) -> SimulatedMachine, optional
        The machine in each run, from 0, with the devices of `machine` but perhaps other costs,
        or another load: another kind of job, planned by the same models.
    """
    loop = _LearningLoop(machine, noise, seed, uses_measured_total)
    return [loop.run(machine_in(run) if machine_in else machine) for run in range(runs)]


class _LearningLoop:
    def __init__(
        self, machine: SimulatedMachine, noise: float, seed: int, uses_measured_total: bool
    ) -> None:
        self._machine = machine
        self._noise = noise
        self._random = random.Random(seed)
        self._uses_measured_total = uses_measured_total
        self._links = {device.name: device.info.link for device in machine.devices}
        self._identities = {device.name: device.info.identity for device in machine.devices}
        self._histories = {
            device: {variant: CoRunnerHistories() for variant in machine.variants}
            for device in self._links
        }
        self._infos = {device.name: device.info for device in machine.devices}
        self._races: dict[str, RaceRecord] = {}
        self._cache = PlanCache()
        self._planners: dict[int, Planner] = {}

    def run(self, machine: SimulatedMachine) -> LearningRun:
        if machine.load not in self._planners:
            self._planners[machine.load] = Planner(machine.load, self._cache)
        planner = self._planners[machine.load]
        plan = planner.next(self._candidates())
        timings = machine.play(plan, self._noise, self._random)
        self._learn(plan, timings)
        planner.report(
            plan,
            {
                device: device_seconds(chunks) / sum(units for units, _ in chunks)
                for device, chunks in timings.items()
                if chunks
            },
        )
        return LearningRun(plan, makespan(timings), makespan(machine.play(plan)))

    def _candidates(self) -> Sequence[Candidate]:
        beside = co_runners_of([*self._infos.values()])
        return [
            self._with_models(candidate).beside(beside[candidate.info.name])
            for candidate in self._machine.candidates({})
        ]

    def _with_models(self, candidate: Candidate) -> Candidate:
        device = candidate.info.name
        models, runs = by_co_runners(self._histories[device], self._links[device])
        return replace(
            candidate,
            models=dict.fromkeys(self._machine.variants),
            run_counts=self._run_counts(device),
            uses_measured_total=self._uses_measured_total,
            races=self._races.get(candidate.info.identity, RaceRecord()),
            models_beside=models,
            runs_beside=runs,
        )

    def _run_counts(self, device: str) -> dict[str, int]:
        return {variant: history.runs for variant, history in self._histories[device].items()}

    def _learn(self, plan: JobPlan, timings: dict[str, ChunkTimings]) -> None:
        self._record_races(plan, timings)
        beside = co_runners_in_run(
            [self._infos[a.device] for a in plan.assignments if not a.is_probe],
            [self._infos[a.device] for a in plan.assignments if a.is_probe],
            [*self._infos.values()],
        )
        ends = [
            (self._infos[a.device], max(times.end for _, times in timings[a.device]))
            for a in plan.assignments
            if not a.is_probe and timings.get(a.device)
        ]
        for assignment in plan.assignments:
            device, chunks = assignment.device, timings.get(assignment.device, ())
            if not chunks:  # all of its units were stolen
                continue
            until = co_runners_end(self._infos[device], ends)
            for variant, evidence in self._samples(assignment, chunks, until).items():
                history = self._histories[device][variant].beside(beside[device])
                medians = run_medians(history.without_calls(evidence))
                history.add(history.with_ratios(medians))
                history.runs += 1
        for co_runners in set(beside.values()):
            for variant in self._machine.variants:
                cores = [
                    self._histories[name][variant].beside(co_runners).model(False)
                    for name, link in self._links.items()
                    if not link
                ]
                pooled_models(cores, self._cache)

    def _samples(
        self, assignment: Assignment, chunks: ChunkTimings, until: float
    ) -> dict[str, list[Sample]]:
        if assignment.rivals:
            return variant_samples(assignment, chunks)
        link = self._links[assignment.device]
        planned, parts = assignment.plan.share, assignment.plan.sub_distributions
        share, seconds = sum(units for units, _ in chunks), device_seconds(chunks)
        samples = run_samples(
            chunks, parts, share, seconds, link=link, planned=planned, until=until
        )
        if not assignment.shows_total:
            samples = without_total(samples, chunks)
        samples += duplex_samples(chunks) if link else call_samples(chunks)
        return {assignment.variant: samples}

    def _record_races(self, plan: JobPlan, timings: dict[str, ChunkTimings]) -> None:
        racing: dict[str, list[Assignment]] = {}
        for assignment in plan.assignments:
            if assignment.rivals:
                racing.setdefault(self._identities[assignment.device], []).append(assignment)
        for identity, assignments in racing.items():
            counts = [self._run_counts(assignment.device) for assignment in assignments]
            number = max(count for by_variant in counts for count in by_variant.values())
            race = race_of(number, assignments, timings)
            if race is not None:
                self._races[identity] = self._races.get(identity, RaceRecord()).with_race(race)
