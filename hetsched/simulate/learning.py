"""Learning a simulated machine from scratch: a loop of planning, running and learning.

The loop is the product's: its `Rebalancer` decides when to replan, its planner makes the plans,
and its `History` makes models of chunk timings. Only the source of the timings differs.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from hetsched.models import DeviceModel
from hetsched.models.evidence.history import History
from hetsched.models.evidence.run_medians import run_medians
from hetsched.models.evidence.samples import duplex_samples, run_samples
from hetsched.planner.job_planner import Candidate, JobPlan, plan_job
from hetsched.planner.plan_cache import PlanCache
from hetsched.planner.rebalancer import Rebalancer
from hetsched.planner.variants import pooled_models
from hetsched.simulate.machine import (
    VARIANT,
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
        The machine in each run, from 0, with the devices of `machine` but perhaps other costs.
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
        self._histories = {device.name: History() for device in machine.devices}
        self._cache = PlanCache()
        self._rebalancer = Rebalancer(machine.load, list(self._histories), self._cache)

    def run(self, machine: SimulatedMachine) -> LearningRun:
        plan = self._plan()
        timings = machine.play(plan, self._noise, self._random)
        self._learn(plan, timings)
        measured = makespan(timings)
        seconds = {device: device_seconds(chunks) for device, chunks in timings.items()}
        self._rebalancer.report(plan, seconds, measured)
        return LearningRun(plan, measured, makespan(machine.play(plan)))

    def _plan(self) -> JobPlan:
        if self._rebalancer.needs_candidates:
            return self._rebalancer.replan(self._candidates())
        return self._rebalancer.repeat()

    def _candidates(self) -> Sequence[Candidate]:
        models: dict[str, DeviceModel | None] = {
            device.name: self._histories[device.name].model(device.info.link)
            for device in self._machine.devices
        }
        return [
            replace(
                candidate,
                run_counts={VARIANT: self._histories[candidate.info.name].runs},
                uses_measured_total=self._uses_measured_total,
            )
            for candidate in self._machine.candidates(models)
        ]

    def _learn(self, plan: JobPlan, timings: dict[str, ChunkTimings]) -> None:
        links = {device.name: device.info.link for device in self._machine.devices}
        for assignment in plan.assignments:
            chunks = timings[assignment.device]
            link = links[assignment.device]
            share, parts = assignment.plan.share, assignment.plan.sub_distributions
            evidence = run_samples(chunks, parts, share, device_seconds(chunks), link=link)
            if link:
                evidence += duplex_samples(chunks)
            history = self._histories[assignment.device]
            history.add(run_medians(evidence))
            history.runs += 1
        cores = [
            history.model(False) for name, history in self._histories.items() if not links[name]
        ]
        pooled_models(cores, self._cache)
