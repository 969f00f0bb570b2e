"""A simulated machine from nothing: planned, played and learnt from, run by run.

The loop is the product's own: its `Rebalancer` decides when to plan anew, its planner how, and its
`History` makes models of chunk timings. Only where the timings come from differs.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from hetsched.models import DeviceModel
from hetsched.models.evidence.history import History
from hetsched.models.evidence.run_medians import run_medians
from hetsched.models.evidence.samples import duplex_samples, run_samples
from hetsched.planner.job_planner import Candidate, JobPlan, plan_job
from hetsched.planner.plan_cache import PlanCache
from hetsched.planner.rebalancer import Rebalancer
from hetsched.planner.variants import pooled_models
from hetsched.simulate.machine import VARIANT, Done, Machine, makespan, seconds


@dataclass(frozen=True)
class Learnt:
    """One run.

    Attributes
    ----------
    plan : JobPlan
    measured : float, seconds
        What it took, noise included.
    really : float, seconds
        What this plan takes without noise.
    """

    plan: JobPlan
    measured: float
    really: float


def known_plan(machine: Machine) -> JobPlan:
    """The plan of the product's planner if it knew what the devices really cost."""
    return plan_job(machine.load, machine.candidates(machine.truth))


def learn(
    machine: Machine, runs: int, noise: float, seed: int, *, measured_total: bool = False
) -> list[Learnt]:
    """So many runs of one load, the first of them with nothing known.

    Parameters
    ----------
    machine : Machine
    runs : int
    noise : float
        Standard deviation of the relative error of each phase of each chunk.
    seed : int
    measured_total : bool
        Shares are weighed as Ilic & Sousa do, by what the last ones took.
    """
    loop = _Loop(machine, noise, seed, measured_total)
    return [loop.run() for _ in range(runs)]


class _Loop:
    def __init__(self, machine: Machine, noise: float, seed: int, measured_total: bool) -> None:
        self._machine = machine
        self._noise = noise
        self._chance = random.Random(seed)
        self._measured_total = measured_total
        self._histories = {one.info.name: History() for one in machine.devices}
        self._cache = PlanCache()
        self._rebalancer = Rebalancer(machine.load, list(self._histories), self._cache)

    def run(self) -> Learnt:
        plan = self._plan()
        played = self._machine.play(plan, self._noise, self._chance)
        self._learn(plan, played)
        measured = makespan(played)
        took = {device: seconds(done) for device, done in played.items()}
        self._rebalancer.report(plan, took, measured)
        return Learnt(plan, measured, makespan(self._machine.play(plan)))

    def _plan(self) -> JobPlan:
        if self._rebalancer.needs_candidates:
            return self._rebalancer.replan(self._candidates())
        return self._rebalancer.repeat()

    def _candidates(self) -> Sequence[Candidate]:
        known: dict[str, DeviceModel | None] = {
            one.info.name: self._histories[one.info.name].model(one.info.link)
            for one in self._machine.devices
        }
        return [
            replace(
                one,
                run_counts={VARIANT: self._histories[one.info.name].runs},
                uses_measured_total=self._measured_total,
            )
            for one in self._machine.candidates(known)
        ]

    def _learn(self, plan: JobPlan, played: dict[str, Done]) -> None:
        links = {one.info.name: one.info.link for one in self._machine.devices}
        for one in plan.assignments:
            done = played[one.device]
            link = links[one.device]
            parts = one.plan.sub_distributions
            found = run_samples(done, parts, one.plan.share, seconds(done), link=link)
            if link:
                found += duplex_samples(done)
            history = self._histories[one.device]
            history.add(run_medians(found))
            history.runs += 1
        cores = [one.model(False) for name, one in self._histories.items() if not links[name]]
        pooled_models(cores, self._cache)
