"""The plan of each run of one kind of job: what is best now, kept unless something gains enough.

Beside it, what isn't known well may be tried (`planner.trials`). The caller passes in what was
learnt; nothing here is measured, timed or stored.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from hetsched.device import DeviceInfo
from hetsched.errors import DataError, UsageError
from hetsched.models.windows import MIN_CHANGE, MIN_TRUSTED_COUNT
from hetsched.partition.options import MIN_GAIN
from hetsched.planner.job_planner import plan_job
from hetsched.planner.neighbours import DeviceSet, co_runners_of, device_sets
from hetsched.planner.records import Candidate, JobPlan
from hetsched.planner.totals import PlanCache
from hetsched.planner.trials import Look, Situation, Trial, all_trials, explained
from hetsched.planner.variants import equal_devices, first_race


class Planner:
    """Plans the runs of one kind of job. For one thread."""

    def __init__(self, load: int, cache: PlanCache | None = None) -> None:
        self._load = load
        self._cache = PlanCache() if cache is None else cache
        self._run = 0
        self._candidates: dict[str, Candidate] = {}
        self._machine: Sequence[DeviceInfo] = ()
        self._present: frozenset[str] | None = None
        self._plan: JobPlan | None = None
        """The last one without a trial."""
        self._gain = 0.0
        """Summed over the runs in which a better split was not adopted."""
        self._looks: dict[str, Look] = {}
        self._usual_paces: dict[str, list[float]] = {}
        """Device -> its shortest ones: of all of them the longest counts, as some may be wild."""
        self._tried: dict[str, tuple[Hashable, int]] = {}
        """Trial -> what was known of it, and how often it was tried since."""

    @property
    def is_new(self) -> bool:
        """Whether it has made no plan, so that it needs `Candidate.idle_runs`."""
        return self._run == 0

    def next(
        self, candidates: Sequence[Candidate], machine: Sequence[DeviceInfo] = (), runs: int = 0
    ) -> JobPlan:
        """Make the plan of the next run. Raises as `plan_job`.

        `machine`: all its devices; those of the candidates are added. `runs`: known ones so far.
        """
        if not candidates:
            raise UsageError("there is no device to plan for")
        known = max(max(c.run_counts.values(), default=0) for c in candidates)
        self._run = max(self._run, runs, known) + 1
        infos = [candidate.info for candidate in candidates]
        self._machine = (*machine, *infos)
        self._candidates = {candidate.info.name: candidate for candidate in candidates}
        for device, candidate in self._candidates.items():
            if device not in self._looks:  # what earlier processes have learnt
                last = self._run - 1
                slow_since = last - candidate.slow_runs + 1 if candidate.slow_runs else None
                self._looks[device] = Look(last - candidate.idle_runs, slow_since)
        sets = device_sets(infos)
        present = next((s for s in sets if s.names == self._present), sets[0])
        plan = self._planned(present)
        if plan is None:  # none of its devices has enough memory
            present = sets[0]
            plan = self._plan_of(present)
        self._present = present.names
        seconds = plan.predicted_seconds
        if seconds is None:
            return self._issued(plan, self._first_race(present, plan))
        plan = self._kept(present, plan)
        return self._with_trial(present, plan, sets)

    def report(self, plan: JobPlan, paces: Mapping[str, float]) -> None:
        """Note how probes went: `paces`, device -> seconds per unit.

        One that was much faster than its model shows that the device is back: it is looked at
        again at once, until the model has learnt that, too.
        """
        for assignment in plan.assignments:
            measured, look = paces.get(assignment.device), self._looks.get(assignment.device)
            if not assignment.is_probe or not assignment.pace or not measured or not look:
                continue
            if assignment.pace / measured > MIN_CHANGE:
                look.slow_since, look.seen = self._run, self._run - MIN_TRUSTED_COUNT

    # ---- plans

    def _plan_of(
        self,
        chosen: DeviceSet,
        shares: Mapping[str, int] | None = None,
        changes: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> JobPlan:
        beside = co_runners_of(chosen.infos, self._machine)
        last = {} if self._plan is None else {a.device: a.plan for a in self._plan.assignments}
        candidates = []
        for info in chosen.infos:
            candidate = self._candidates[info.name].beside(beside[info.name])
            if info.name in chosen.variants:
                candidate = candidate.with_only(chosen.variants[info.name])
            last_plan = last.get(info.name) if info.link else None
            changed = {} if changes is None else changes.get(info.name, {})
            candidates.append(replace(candidate, last_plan=last_plan, **changed))
        return plan_job(self._load, candidates, shares, cache=self._cache)

    def _planned(
        self,
        chosen: DeviceSet,
        shares: Mapping[str, int] | None = None,
        changes: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> JobPlan | None:
        """Return None if none of the devices has enough memory."""
        try:
            return self._plan_of(chosen, shares, changes)
        except DataError:
            return None

    def _kept(self, present: DeviceSet, plan: JobPlan) -> JobPlan:
        """Return the last split, unless `plan` gains enough, now or summed over the runs."""
        old = self._plan
        if old is None or old.shares.keys() != plan.shares.keys() or old.shares == plan.shares:
            self._gain = 0.0
            return plan
        same = self._planned(present, old.shares)
        if same is None or not same.predicted_seconds or not plan.predicted_seconds:
            return plan
        gain = 1 - plan.predicted_seconds / same.predicted_seconds
        tolerance = 2 * MIN_GAIN * max(0.25, min(1.0, self._run / 10))
        self._gain += max(0.0, gain - 0.2 * tolerance)
        if max(gain, self._gain) > tolerance:
            self._gain = 0.0
            return plan
        return same

    # ---- trials

    def _first_race(self, present: DeviceSet, plan: JobPlan) -> JobPlan:
        changes = {}
        for devices in equal_devices(plan):
            race = first_race(devices)
            if race is not None:
                changes.update({each.device: {"race": race} for each in devices})
        raced = self._planned(present, None, changes) if changes else None
        return plan if raced is None else replace(raced, trial="variants race")

    def _with_trial(self, present: DeviceSet, plan: JobPlan, sets: Sequence[DeviceSet]) -> JobPlan:
        assert plan.predicted_seconds is not None, "nothing to compare"
        now = Situation(
            load=self._load,
            run=self._run,
            plan=plan,
            seconds=plan.predicted_seconds,
            present=present,
            sets=sets,
            candidates=self._candidates,
            machine=self._machine,
            looks=self._looks,
            usual_paces={device: paces[-1] for device, paces in self._usual_paces.items()},
            planned=self._planned,
        )
        trials = list(all_trials(now))
        adopted = self._adopted(now, [trial for trial in trials if trial.is_known])
        if adopted is not None:
            chosen = next(s for s in sets if s.names == self._present)
            now = replace(now, plan=adopted, present=chosen)
            return self._issued(adopted, explained(adopted, now, trials))
        best = max(filter(self._may_try, trials), key=now.value, default=None)
        tried = best.plan() if best is not None and now.value(best) > 0 else None
        if best is None or tried is None:
            return self._issued(plan, explained(plan, now, trials))
        seen, count = self._tried.get(best.what, (best.evidence, 0))
        self._tried[best.what] = best.evidence, count + 1 if seen == best.evidence else 1
        return self._issued(plan, explained(tried, now, trials, best))

    def _may_try(self, trial: Trial) -> bool:
        """Return whether it wasn't tried thrice in vain, as when other jobs ran beside it."""
        evidence, count = self._tried.get(trial.what, (trial.evidence, 0))
        return not trial.is_known and (evidence != trial.evidence or count < MIN_TRUSTED_COUNT)

    def _adopted(self, now: Situation, known: Sequence[Trial]) -> JobPlan | None:
        faster = [trial for trial in known if now.value(trial) > 0]
        for trial in sorted(faster, key=now.value, reverse=True):
            plan = trial.plan()
            if plan is None or plan.predicted_seconds is None or trial.device_set is None:
                continue
            start = trial.option.moving_cost / max(now.horizon, 1)
            if (plan.predicted_seconds + start) * (1 + MIN_GAIN) < now.seconds:
                self._present, self._gain = trial.device_set.names, 0.0
                return plan
        return None

    # ---- what it remembers

    def _issued(self, plan: JobPlan, issued: JobPlan) -> JobPlan:
        """Record the plan of this run, which is `plan` or tries something beside it."""
        if plan.predicted_seconds is not None:
            self._plan = plan
        for device, look in self._looks.items():
            if device in issued.shares:
                look.seen = self._run
            if device in plan.shares:
                look.slow_since = None
            elif look.slow_since is None:
                look.slow_since = self._run
        for assignment in () if issued.trial else plan.assignments:
            if assignment.pace is not None:
                paces = [*self._usual_paces.get(assignment.device, ()), assignment.pace]
                self._usual_paces[assignment.device] = sorted(paces)[:MIN_TRUSTED_COUNT]
        return issued
