"""Plans the attempts of one job, and learns from its run: updates models.db, plans the next.

Planning takes a millisecond, or ten with cold caches; a repeated job follows its last plan.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from hetsched.device import DeviceInfo
from hetsched.device_process.tuning import KIND as TUNED
from hetsched.engine.admission.resolved_job import ResolvedJob
from hetsched.engine.planning.job_plan import (
    computed_seconds,
    find_candidates,
    first_plan,
    model_key,
    next_plan,
    race_label,
)
from hetsched.engine.planning.planning_state import JobKind, PlanningState, job_kind
from hetsched.models.races import Race
from hetsched.models.samples import CoRunners, Sample, is_time
from hetsched.planner.learning import DeviceRun, Run, learn, makespan
from hetsched.planner.neighbours import co_runners_of
from hetsched.planner.records import Assignment, JobPlan
from hetsched.planner.variants import pooled_models
from hetsched.store.model_records import ModelKey, RaceKey

if TYPE_CHECKING:
    from hetsched.engine.run.runner import JobRunner


T = TypeVar("T")
LearningTask = Callable[[], None]
"""For the planner's thread: learn from a run and plan the next."""
Lesson = tuple[str, str, CoRunners]
"""Device, variant and co-runners, of which samples are."""


class JobPlanning:
    def __init__(self, runner: JobRunner) -> None:
        self._runner = runner
        self._job = runner.job
        self._engine = runner.engine
        self._state = runner.engine.planning
        self._infos: Sequence[DeviceInfo] = ()
        self._unstarted: Collection[str] = ()

    async def plan(self, infos: Sequence[DeviceInfo]) -> JobPlan:
        """Plan an attempt: at once if the kind of job has a plan. Raises Unavailable."""
        if (iterations := self._runner.iterations) is not None:
            job, spec = self._job, self._runner.spec
            plan, balance = await self._in_planner(
                lambda: first_plan(job, spec, infos, self._state)
            )
            working = [each.device for each in plan.assignments if each.chunks]
            iterations.balance_with(balance, working)
            return plan
        self._infos = infos
        self._unstarted = self._engine.fleet.devices("unneeded")
        await self._tune()
        if (known := self._known_plan()) is not None:
            return known
        # By now the previous job may have been learnt from, and this one planned.
        return await self._in_planner(lambda: self._known_plan() or self._new_plan())

    def learning_task(self, runs: Mapping[str, DeviceRun] | None) -> LearningTask | None:
        """Return what to learn from a run, if it is typical, and the plan of the next."""
        job, attempt, state = self._job, self._runner.latest, self._state
        if attempt is None:
            return None
        if (iterations := self._runner.iterations) is not None:
            return lambda: learn_rows(
                job, attempt.assignments, attempt.infos, iterations.measured(), state
            )
        if runs is None or not self._infos:
            return None  # a run beside another one adds nothing to measurements
        run = Run(attempt.plan, runs, state.machine(), self._runner.small_jobs_beside > 0)
        kind = self._kind()
        tuned = self._engine.tuner.kind(job)
        own = [each for each in runs.values() if each.chunks and each.info.variant_kind == TUNED]
        tuned.threads |= {each.info.threads for each in own}
        tuned.used = frozenset(each.assignment.variant for each in own)
        tuned.computed += makespan(runs)
        if job.measure:
            return lambda: learn_run(job, run, state, kind)
        if not state.plans.count_run(kind, run.plan, makespan(runs)):
            return None

        def learn_and_plan() -> None:
            learn_run(job, run, state, kind)
            self._new_plan()

        return learn_and_plan

    async def _tune(self) -> None:
        """Tell what was tuned for this job; tune for it now if the engine may not idle later."""
        tuner, job, runner = self._engine.tuner, self._job, self._runner
        kind = tuner.kind(job)
        while kind.news:
            runner.note(kind.news.pop(0))
        # Not again before jobs have computed twice as long
        is_due = tuner.is_before_jobs and kind.computed >= 2 * kind.seen
        if is_due and not job.measure and runner.latest is None:
            computed = await self._in_planner(
                lambda: computed_seconds(find_candidates(job, self._infos, self._state), job.load)
            )
            await tuner.tune_now(kind, computed, runner.report_planning)

    def _kind(self) -> JobKind:
        return job_kind(self._job, [info.name for info in self._infos])

    async def _in_planner(self, make: Callable[[], T]) -> T:
        # The job counts as running from here on: code of its workload might end the daemon.
        self._runner.report_planning()
        return await self._engine.planner_thread.call(make)

    def _new_plan(self) -> JobPlan:
        plans = self._state.plans
        generation = plans.generation
        # With the memory that devices have now, not when the job started.
        current = {info.name: info for info in self._state.machine()}
        infos = [current.get(info.name, info) for info in self._infos]
        plan = next_plan(self._job, infos, self._state, self._unstarted)
        if not self._job.measure:
            plans.put(self._kind(), plan, generation)
        return plan

    def _known_plan(self) -> JobPlan | None:
        return None if self._job.measure else self._state.plans.get(self._kind())


def learn_run(job: ResolvedJob, run: Run, state: PlanningState, kind: JobKind) -> None:
    """Update models and planner after a run of `job`. The store is not flushed to disk."""
    now = time.time()
    lessons = learn(run)
    infos = {device: each.info for device, each in run.devices.items()}
    groups: dict[Lesson, list[ModelKey]] = {}
    for (device, name, beside), key in _observe(job, infos, lessons.samples, state).items():
        if infos[device].is_core:
            groups.setdefault((infos[device].identity, name, beside), []).append(key)
    for equal in groups.values():  # fitted in advance, for the next plan
        pooled_models(state.store.load_many(equal, False), state.plan_cache)
    for identity, race in lessons.races.items():
        info = next(info for info in infos.values() if info.identity == identity)
        labels = {v.name: race_label(v) for v in state.usable_variants(job, info)}
        paces = {labels[name]: found for name, found in race.paces.items() if name in labels}
        race_key = RaceKey(job.workload.name, job.speed_key, identity, job.storage)
        state.store.add_race(race_key, Race(race.number, race.units, paces, now))
    state.raise_memory_limits(infos.values())
    if not run.is_contended:
        state.plans.planner(kind, job.load).report(run.plan, run.paces)


def _observe(
    job: ResolvedJob,
    infos: Mapping[str, DeviceInfo],
    samples: Mapping[Lesson, Sequence[Sample]],
    state: PlanningState,
) -> dict[Lesson, ModelKey]:
    """Store samples with the models of variants that still work; return their keys."""
    keys = {
        (device, name, beside): model_key(job, infos[device], variant, beside)
        for device, name, beside in samples
        for variant in state.usable_variants(job, infos[device])  # it may have failed since
        if variant.name == name
    }
    state.store.observe_many([(key, samples[of]) for of, key in keys.items()], time.time())
    return keys


def learn_rows(
    job: ResolvedJob,
    assignments: Mapping[str, Assignment],
    infos: Mapping[str, DeviceInfo],
    times: Iterable[tuple[str, int, float, float | None]],
    state: PlanningState,
) -> None:
    """Update the models of the devices that computed iterations. The store isn't flushed.

    A device that copied has the curve "compute", too: the rest of its time is NEC's XFER_TIME.
    """
    samples: dict[str, list[Sample]] = {}
    for device, rows, seconds, compute in times:
        if is_time(seconds):
            samples.setdefault(device, []).append(Sample("total", rows, seconds))
            if compute is not None and is_time(compute):
                samples[device].append(Sample("compute", rows, compute))
    measured = [device for device in samples if device in assignments]
    beside = co_runners_of([infos[device] for device in measured], state.machine())
    of_variants = {
        (device, assignments[device].variant, beside[device]): samples[device]
        for device in measured
    }
    _observe(job, infos, of_variants, state)
