"""Plans the attempts of one job, and learns from its run: updates models.db, plans the next.

Planning takes a millisecond, or ten with cold caches; a repeated job follows its last plan.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from hetsched.device import DeviceInfo
from hetsched.devices.probe import throttle_reasons
from hetsched.engine.admission.resolved_job import ResolvedJob
from hetsched.engine.planning.job_plan import (
    computed_seconds,
    find_candidates,
    first_plan,
    model_key,
    next_plan,
    race_label,
)
from hetsched.engine.planning.planning_state import (
    DeviceRun,
    FinishedRun,
    JobKind,
    PlanningState,
    job_kind,
    makespan,
    run_start,
)
from hetsched.job import Running
from hetsched.models.call_cost import call_samples
from hetsched.models.evidence.change_detector import SpeedChange
from hetsched.models.evidence.co_runners import CoRunners
from hetsched.models.evidence.host_overhead import (
    overhead_by_core,
    overhead_seconds,
    without_overhead,
)
from hetsched.models.evidence.races import Race
from hetsched.models.evidence.samples import (
    MIN_JUDGED_SECONDS,
    Sample,
    as_contended,
    duplex_samples,
    fresh_samples,
    is_time,
    run_samples,
    without_total,
)
from hetsched.planner.host_overhead import may_share_core
from hetsched.planner.neighbours import co_runners_end, co_runners_in_run
from hetsched.planner.races import race_of, variant_samples, with_fresh_race
from hetsched.planner.records import Assignment, JobPlan
from hetsched.planner.variants import pooled_models
from hetsched.store.model_records import ModelKey, RaceKey

if TYPE_CHECKING:
    from hetsched.engine.run.runner import JobRunner


log = logging.getLogger(__name__)

T = TypeVar("T")
LearningTask = Callable[[], None]
"""For the planner's thread: learn from a run and plan the next."""
RunKeys = Mapping[str, Mapping[str, ModelKey]]
"""Device -> variant -> model key, of one run."""


class JobPlanning:
    """Plans the attempts of one job, and makes the task that learns from it."""

    def __init__(self, runner: JobRunner) -> None:
        self._runner = runner
        self._job = runner.job
        self._memory_limit = runner.spec.memory_limit or runner.context.memory_limit
        self._context = runner.context
        self._state = runner.context.planning
        self._infos: Sequence[DeviceInfo] = ()
        self._unstarted: Collection[str] = ()

    async def plan(self, infos: Sequence[DeviceInfo]) -> JobPlan:
        """Plan an attempt on `infos`: at once if the kind of job has a plan.

        Raises Unavailable if no device has a variant of the workload.
        """
        if self._runner.iterations is not None:
            return await self._first_plan(infos)
        self._infos = infos
        self._unstarted = self._context.fleet.unstarted()
        await self._tune()
        plan = self._known_plan()
        if plan is not None:
            return self._predicted(plan)
        # By now the previous job may have been learnt from, and this one planned.
        return await self._in_planner(
            lambda: self._predicted(self._known_plan() or self._new_plan())
        )

    def learning_task(self, runs: Mapping[str, DeviceRun] | None) -> LearningTask | None:
        """Return what to learn from a job that has ended, and the plan of the next; None: nothing.

        `runs`: device -> its part of the run; None: it isn't typical.
        """
        job, attempt, state = self._job, self._runner.latest, self._state
        if attempt is None:
            return None
        if (iterations := self._runner.iterations) is not None:
            return lambda: learn_rows(
                job, attempt.assignments, attempt.infos, iterations.measured(), state
            )
        if runs is None or not self._infos:
            return None  # a run beside another one adds nothing to measurements
        is_contended = self._runner.small_jobs_beside > 0
        run = FinishedRun(attempt.plan, runs, is_contended, self._fresh_devices(runs))
        kind = self._kind()
        self._context.tuner.add_run(job, runs.values(), makespan(runs))
        if job.measure:
            return lambda: learn(job, run, state, kind)
        step = state.plans.on_run(kind, run.plan, makespan(runs))
        if step == "repeat":
            return None

        def learn_and_plan() -> None:
            learn(job, run, state, kind)
            self._new_plan()

        return learn_and_plan

    async def _tune(self) -> None:
        """Tell what was tuned for this job; tune for it now if the engine may not idle later."""
        tuner, job, runner = self._context.tuner, self._job, self._runner
        for news in tuner.take_news(job):
            runner.note(news)
        if tuner.is_before_jobs and not job.measure and runner.latest is None:
            computed = await self._in_planner(
                lambda: computed_seconds(
                    find_candidates(job, self._infos, self._state, self._memory_limit), job.load
                )
            )
            await tuner.tune_now(job, computed, runner.report_tuning)

    def _kind(self) -> JobKind:
        return job_kind(self._job, [info.name for info in self._infos], self._memory_limit)

    async def _first_plan(self, infos: Sequence[DeviceInfo]) -> JobPlan:
        """Return the plan of an attempt at iterations; the first one also has the balance."""
        job, spec, iterations = self._job, self._runner.spec, self._runner.iterations
        assert iterations is not None
        first = await self._in_planner(
            lambda: first_plan(job, spec, infos, self._state, self._memory_limit)
        )
        working = [each.device for each in first.plan.assignments if each.chunks]
        iterations.balance_with(first.balance, working)
        return first.plan

    async def _in_planner(self, make: Callable[[], T]) -> T:
        # The job counts as running from here on: code of its workload might end the daemon.
        self._runner.on_state(Running(self._runner.number, "preparing"))
        return await self._context.planner_thread.call(lambda step: make())

    def _fresh_devices(self, runs: Mapping[str, DeviceRun]) -> frozenset[str]:
        """Return devices whose process ran its variant for the first time, and record that."""
        kernels = self._state.kernels
        assignments = [
            run.assignment for run in runs.values() if run.chunks and may_be_cold(run.info)
        ]
        fresh = [each.device for each in assignments if kernels.is_first_run(self._job, each)]
        for assignment in assignments:
            kernels.record_run(self._job, assignment)
        return frozenset(fresh)

    def _new_plan(self) -> JobPlan:
        plans = self._state.plans
        generation = plans.generation
        # With the memory that devices have now, not when the job started.
        current = {info.name: info for info in self._state.machine()}
        infos = [current.get(info.name, info) for info in self._infos]
        plan = next_plan(self._job, infos, self._state, self._memory_limit, self._unstarted)
        if not self._job.measure:
            plans.put(self._kind(), plan, generation)
        return plan

    def _predicted(self, plan: JobPlan) -> JobPlan:
        """Return `plan`, which is for warm processes, as these processes will run it."""
        kernels = self._state.kernels
        return predicted_cold(
            plan,
            [
                assigned.device
                for assigned in plan.assignments
                if assigned.candidate is not None
                and may_be_cold(assigned.candidate.info)
                and kernels.is_first_run(self._job, assigned)
            ],
        )

    def _known_plan(self) -> JobPlan | None:
        return None if self._job.measure else self._state.plans.get(self._kind())


def may_be_cold(info: DeviceInfo) -> bool:
    """Return whether the first run in a process may be slower: a core with a real clock."""
    return info.kind == "cpu" and info.clock == "wall"


def predicted_cold(plan: JobPlan, fresh: Collection[str]) -> JobPlan:
    """Return `plan` with the predictions that hold if the processes of `fresh` are fresh."""
    ratios = {
        assigned.device: assigned.model.cold.ratio(assigned.plan.share)
        for assigned in plan.assignments
        if assigned.device in fresh and assigned.model is not None and assigned.plan.share > 0
    }
    if all(ratio == 1.0 for ratio in ratios.values()) or plan.predicted_seconds is None:
        return plan
    seconds = {
        assigned.device: assigned.predicted_seconds * ratios.get(assigned.device, 1.0)
        for assigned in plan.assignments
        if assigned.predicted_seconds is not None
    }
    assignments = tuple(
        replace(assigned, predicted_seconds=seconds.get(assigned.device))
        for assigned in plan.assignments
    )
    return replace(plan, assignments=assignments, predicted_seconds=max(seconds.values()))


# ---- learning from a run


def learn(job: ResolvedJob, run: FinishedRun, state: PlanningState, kind: JobKind) -> None:
    """Update models and planner after a run of `job`. The store is not flushed to disk.

    `kind`: of the job on the devices usable at the time.
    """
    now = time.time()
    keys = _model_keys(job, run.runs, state)
    raced = set() if run.is_contended else _learn_races(job, run.runs, state, now)
    changes = state.store.observe_many(_observations(run, keys), now)
    _fit_equal_cores(run.runs, keys, state)
    state.raise_memory_limits(run.runs)
    if not run.is_contended:
        paces = {
            device: each.seconds / each.share for device, each in run.runs.items() if each.chunks
        }
        state.plans.planner(kind, job.load).report(run.plan, paces)
    for key, change in changes.items():
        _record_change(key, change, state, now, raced)


def _observations(run: FinishedRun, keys: RunKeys) -> list[tuple[ModelKey, Sequence[Sample]]]:
    overheads = _host_overhead(run.runs)
    working = [each for each in run.runs.values() if each.chunks and not each.assignment.is_probe]
    ends = [(each.info, each.span[1]) for each in working]
    observations: list[tuple[ModelKey, Sequence[Sample]]] = []
    for device, by_variant in keys.items():
        of_device, overhead = run.runs[device], overheads.get(device, 0.0)
        warm = _samples(of_device, overhead, co_runners_end(of_device.info, ends))
        for variant, samples in _with_cold(run, device, warm, overhead).items():
            if variant in by_variant:
                judged = _judged(samples, of_device, is_contended=run.is_contended)
                observations.append((by_variant[variant], judged))
    return observations


def _with_cold(
    finished: FinishedRun, device: str, samples: dict[str, list[Sample]], overhead: float
) -> dict[str, list[Sample]]:
    """Return `samples`, with the time of the whole share if the device's process was fresh.

    From the start of the run, as a fresh process may start later than others. Not if limited
    memory made it slower.
    """
    run = finished.runs[device]
    candidate = run.assignment.candidate
    is_limited = candidate is not None and candidate.is_constrained
    if device not in finished.fresh or is_limited:
        return samples
    seconds = run.span[1] - run_start(finished.runs) - overhead
    if run.assignment.rivals:
        return with_fresh_race(run.assignment, run.chunks, seconds, samples)
    planned = run.assignment.plan.share
    cold = fresh_samples(run.chunks, run.share, seconds, planned=planned)
    return {
        variant: [*warm, *(as_contended(cold) if any(s.contended for s in warm) else cold)]
        for variant, warm in samples.items()
    }


def _model_keys(job: ResolvedJob, runs: Mapping[str, DeviceRun], state: PlanningState) -> RunKeys:
    """Return the model keys of devices that computed: these were each other's co-runners.

    Variants that have since failed in a later job are omitted.
    """
    busy = [run for run in runs.values() if run.chunks]
    co_runners = co_runners_in_run(
        [run.info for run in busy if not run.assignment.is_probe],
        [run.info for run in busy if run.assignment.is_probe],
        state.machine(),
    )
    return {
        device: {
            variant.name: model_key(job, run.info, variant, co_runners[device])
            for variant in state.variants.usable(job, run.info)
            if variant.name in run.assignment.variants
        }
        for device, run in runs.items()
        if run.chunks
    }


def _samples(run: DeviceRun, overhead: float, until: float) -> dict[str, list[Sample]]:
    """Return the samples of each variant, less `overhead` seconds that other devices took.

    `until`: when the first of its co-runners finished.
    """
    if run.assignment.rivals:
        return {} if run.is_merged else variant_samples(run.assignment, run.chunks)
    evidence = run_samples(
        without_overhead(run.chunks, overhead),
        run.assignment.plan.sub_distributions,
        run.share,
        run.seconds - overhead,
        link=run.info.link,
        planned=run.assignment.plan.share,
        until=until,
    )
    if run.is_merged:
        largest = max((s.units for s in evidence if s.curve == "total"), default=0)
        evidence = [s for s in evidence if (s.curve, s.units) == ("total", largest)]
    if run.info.link:
        evidence += [] if run.is_merged else duplex_samples(run.chunks)
    else:
        calls = run.assignment.plan.chunks if run.is_merged else None
        evidence += call_samples(run.chunks, calls)
    candidate = run.assignment.candidate
    is_limited = candidate is not None and candidate.is_constrained
    if is_limited or not run.assignment.shows_total:
        evidence = without_total(evidence, run.chunks)
    return {run.assignment.variant: evidence}


def _judged(evidence: Sequence[Sample], run: DeviceRun, *, is_contended: bool) -> Sequence[Sample]:
    """Return samples, marked as contended if the device wasn't at its usual speed."""
    if is_contended and run.info.is_shareable:
        return as_contended(evidence)
    reasons = throttle_reasons(run.info) if run.seconds >= MIN_JUDGED_SECONDS else ()
    if reasons:
        log.info("%s was throttled: %s", run.info.name, ", ".join(reasons))
        evidence = as_contended(evidence)
    return evidence


def _host_overhead(runs: Mapping[str, DeviceRun]) -> dict[str, float]:
    """Return core -> seconds that the processes of other devices took from it, if reported."""
    cores = {device: run for device, run in runs.items() if run.info.is_core and run.chunks}
    overhead = dict.fromkeys(cores, 0.0)
    for driven in runs.values():
        seconds = overhead_seconds(driven.chunks) if driven.info.clock == "wall" else 0.0
        if not seconds:
            continue
        hosts = {
            device: core.chunks
            for device, core in cores.items()
            if may_share_core(driven.info, core.info)
        }
        for device, part in overhead_by_core(hosts, seconds).items():
            overhead[device] += part
    return overhead


def _fit_equal_cores(runs: Mapping[str, DeviceRun], keys: RunKeys, state: PlanningState) -> None:
    """Fit the common models of equal cores in advance, for the next plan."""
    groups: dict[tuple[str, str, CoRunners], list[ModelKey]] = {}
    for device, by_variant in keys.items():
        info = runs[device].info
        for key in by_variant.values() if info.is_core else ():
            group = info.identity, key.variant, key.co_runners
            groups.setdefault(group, []).append(key)
    for equal_keys in groups.values():
        pooled_models(state.store.load_many(equal_keys, False), state.plan_cache)


def _record_change(
    key: ModelKey, change: SpeedChange, state: PlanningState, at: float, raced: Collection[RaceKey]
) -> None:
    """Plan again, and let the best variant race again; `at`: seconds since the epoch.

    It is confirmed some runs after it: the latest race counts if it is in `raced`, those just run.
    """
    device = key.device.split()[0]
    text = f"{device}: {key.workload} by {key.variant} {change}"
    log.info("%s", text)
    state.record_speed_change(device, text)
    races = state.store.races(key.race_key).races
    if races:
        number = races[-1].number + (key.race_key not in raced)
        state.store.add_race(key.race_key, Race(number, 0.0, {}, at))


# ---- iterations


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
    if not measured:
        return
    infos = {device: infos[device] for device in measured}
    machine = state.machine()
    co_runners = co_runners_in_run(list(infos.values()), [], machine)
    observations: list[tuple[ModelKey, list[Sample]]] = []
    for device, info in infos.items():
        for variant in state.variants.usable(job, info):
            if variant.name == assignments[device].variant:
                key = model_key(job, info, variant, co_runners[device])
                observations.append((key, samples[device]))
    state.store.observe_many(observations, time.time())


# ---- races of variants


def _learn_races(
    job: ResolvedJob, runs: Mapping[str, DeviceRun], state: PlanningState, at: float
) -> set[RaceKey]:
    """Record the races of a run, one for each kind of core, and return their keys."""
    raced: set[RaceKey] = set()
    groups: dict[str, list[DeviceRun]] = {}
    for run in runs.values():
        if run.assignment.rivals and run.chunks and not run.is_merged:
            groups.setdefault(run.info.identity, []).append(run)
    for group in groups.values():
        race = _race(group)
        if race is None:
            continue
        info = group[0].info
        labels = {v.name: race_label(v) for v in state.variants.usable(job, info)}
        paces = {labels[name]: found for name, found in race.paces.items() if name in labels}
        key = RaceKey(job.workload.name, job.speed_key, info.identity, job.storage)
        state.store.add_race(key, Race(race.number, race.units, paces, at))
        raced.add(key)
    return raced


def _race(group: list[DeviceRun]) -> Race | None:
    candidates = [run.assignment.candidate for run in group]
    counts = [max(c.run_counts.values(), default=0) for c in candidates if c is not None]
    return race_of(
        max(counts, default=0),
        [run.assignment for run in group],
        {run.assignment.device: run.chunks for run in group},
    )
