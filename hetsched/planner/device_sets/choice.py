"""The choice between sets of devices that could do a job: all of them, or some that run faster.

The present set is planned each time. Others are estimated from its plan and the models
(`estimates`); one that may be faster is planned, tried for a few runs, and kept if it is faster.
Core teams are chosen afterwards (`teams`). Pure but for the `SetState` passed in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from hetsched.device import DeviceInfo
from hetsched.errors import DataError
from hetsched.planner.device_sets.estimates import (
    DeviceUse,
    PresentPaces,
    estimated_seconds,
)
from hetsched.planner.device_sets.neighbours import co_runners_of
from hetsched.planner.device_sets.set_state import SetState
from hetsched.planner.device_sets.subsets import DeviceSet, device_sets
from hetsched.planner.device_sets.team_variants import with_only
from hetsched.planner.host_overhead import plan_with_host_overhead
from hetsched.planner.records import Candidate, JobPlan
from hetsched.planner.totals import PlanCache
from hetsched.planner.variants import MIN_TRUSTED_RUNS, rough_seconds
from hetsched.units import format_seconds

MIN_TRIAL_GAIN = 0.05
"""Minimum gain, by an optimistic prediction, for which a set is tried."""
MIN_MEASURED_GAIN = 0.02
"""Minimum gain for which a measured set replaces the present one: more than the noise of a few
runs. Arbitrary."""
MIN_PRESENT_RUNS = 4
"""Runs of each device of the present set before another set is tried: as many as it takes from
nothing to a balanced split."""
MIN_JOB_SECONDS = 0.005
"""Shorter jobs aren't worth trials. Arbitrary."""
MAX_RETRY_TIME_RATIO = 1.1
"""Ratio to the present time up to which a set that was slower is tried again. Arbitrary."""
MAX_PLANNED_SETS = 2
"""Sets planned at most besides the present one, those with the best estimates."""


@dataclass(frozen=True)
class _Option:
    """A set that may be faster than the present one.

    `optimistic`: the seconds that it may take at best; `plain`: by the nearest models. Estimates.
    """

    device_set: DeviceSet
    uses: Mapping[str, DeviceUse]
    optimistic: float
    plain: float

    @property
    def is_measured(self) -> bool:
        """Whether all its devices were measured beside the co-runners that they would have."""
        return all(use.is_measured for use in self.uses.values())

    @property
    def may_be_trusted(self) -> bool:
        """Whether some of its devices have enough runs there; not all need have a share."""
        return any(use.all_runs >= MIN_TRUSTED_RUNS for use in self.uses.values())


class SetChoice:
    """One plan of one job with the best of its sets of devices.

    Parameters
    ----------
    load : int, units, >= 1
    candidates : sequence of Candidate
        Without core teams.
    state : SetState
        Of this kind of job; changed.
    machine : sequence of DeviceInfo
        All devices of the machine.
    cache : PlanCache
    """

    def __init__(
        self,
        load: int,
        candidates: Sequence[Candidate],
        state: SetState,
        machine: Sequence[DeviceInfo],
        cache: PlanCache,
    ) -> None:
        self._load = load
        self._candidates = candidates
        self._by_name = {candidate.info.name: candidate for candidate in candidates}
        self._state = state
        self._machine = machine
        self._cache = cache
        self._sets = device_sets([candidate.info for candidate in candidates])

    def plan(self, *, tries_others: bool = True) -> JobPlan:
        """Plan the present set, or another one that is faster or to be tried.

        Parameters
        ----------
        tries_others : bool
            False: keep the present set.

        Returns
        -------
        JobPlan
            `is_exploring` if another set is tried.

        Raises
        ------
        DataError, UsageError
            As `plan_with_host_overhead`.
        """
        state = self._state
        present = next((s for s in self._sets if s.names == state.present), self._sets[0])
        state.wants_plan = state.is_trying = False
        try:
            plan = self._plan_of(present)
        except DataError:  # none of its devices has enough memory
            present = self._sets[0]
            plan = self._plan_of(present)
        state.change(present)
        plan = self._explained(plan, present, f"the job is faster with {present.label} only")
        seconds = plan.predicted_seconds
        if len(self._sets) == 1 or not tries_others or plan.is_exploring or seconds is None:
            return plan
        if seconds < MIN_JOB_SECONDS:
            return plan
        return self._other_plan(present, plan, seconds) or plan

    def _plan_of(self, device_set: DeviceSet) -> JobPlan:
        chosen = candidates_of(device_set.infos, self._candidates, self._machine)
        return plan_with_host_overhead(self._load, chosen, cache=self._cache)

    def _other_plan(self, present: DeviceSet, plan: JobPlan, seconds: float) -> JobPlan | None:
        """Return the plan of a set that is faster than `plan`, or to be tried; None: neither."""
        variants = self._variants(plan)
        uses = self._uses(present, variants)
        has_enough_runs = _fewest_runs(plan, uses) >= MIN_PRESENT_RUNS
        options = self._options(present, variants, PresentPaces.of(plan, uses))
        if not has_enough_runs:
            promising = [o for o in options if self._may_gain(o, o.optimistic, seconds)]
            self._state.wants_plan = bool(promising)
            return None
        planned = 0
        for option in options:
            if planned < MAX_PLANNED_SETS and self._may_gain(option, option.optimistic, seconds):
                planned += 1
                other = self._considered(option, seconds)
                if other is not None:
                    return other
        return None

    def _options(
        self, present: DeviceSet, variants: Mapping[str, str], paces: PresentPaces
    ) -> list[_Option]:
        """Return the other sets whose devices all have measurements, the most promising first."""
        options = []
        for device_set in self._sets:
            uses = self._uses(device_set, variants)
            if device_set == present or len(uses) < len(device_set.infos):
                continue
            optimistic = estimated_seconds(self._load, [*uses.values()], paces, is_optimistic=True)
            plain = estimated_seconds(self._load, [*uses.values()], paces, is_optimistic=False)
            if optimistic is not None and plain is not None:
                options.append(_Option(device_set, uses, optimistic, plain))
        return sorted(options, key=lambda option: option.optimistic)

    def _may_gain(self, option: _Option, optimistic: float, seconds: float) -> bool:
        """Return whether a set that may take `optimistic` seconds is worth a plan or a trial."""
        gain = MIN_MEASURED_GAIN if option.is_measured else MIN_TRIAL_GAIN
        if optimistic * (1 + gain) < seconds:
            return True
        if option.is_measured:
            self._state.reject(option.device_set)
        is_close = optimistic < MAX_RETRY_TIME_RATIO * seconds
        return is_close and self._state.is_retry_due(option.device_set)

    def _considered(self, option: _Option, seconds: float) -> JobPlan | None:
        """Return the plan of a set if it replaces the present one or is to be tried."""
        may_try = self._state.may_try(option.device_set)
        if not may_try and not option.may_be_trusted:
            return None
        candidates = [_only(use) for use in option.uses.values()]
        try:
            plan = plan_with_host_overhead(self._load, candidates, cache=self._cache)
        except DataError:  # none of its devices has enough memory
            return None
        if plan.predicted_seconds is None:
            return None
        optimistic = plan.predicted_seconds * option.optimistic / option.plain
        if not self._may_gain(option, optimistic, seconds):
            return None
        label = f"with {option.device_set.label} only"
        runs = _fewest_runs(plan, option.uses)
        if runs >= MIN_TRUSTED_RUNS and plan.predicted_seconds < seconds:
            self._state.change(option.device_set)
            self._state.wants_plan = True
            times = f"{format_seconds(plan.predicted_seconds)} against {format_seconds(seconds)}"
            return self._explained(plan, option.device_set, f"the job is faster {label} ({times})")
        if not may_try:
            return None
        self._state.record_trial_run(option.device_set)
        self._state.is_trying = True
        tried = self._explained(
            plan, option.device_set, f"the job is tried {label}, which may be faster"
        )
        return replace(tried, is_exploring=True)

    def _variants(self, plan: JobPlan) -> dict[str, str]:
        """Return device -> its variant in `plan`, or the fastest measured one."""
        variants = {assignment.device: assignment.variant for assignment in plan.assignments}
        for candidate in self._candidates:
            models = {name: model for name, model in candidate.models.items() if model is not None}
            if models and candidate.info.name not in variants:
                units = self._load / len(self._candidates)
                best = min(models, key=lambda name: rough_seconds(models[name], units))
                variants[candidate.info.name] = best
        return variants

    def _uses(self, device_set: DeviceSet, variants: Mapping[str, str]) -> dict[str, DeviceUse]:
        beside = co_runners_of(device_set.infos, self._machine)
        return {
            name: DeviceUse(self._by_name[name], variants[name], co_runners)
            for name, co_runners in beside.items()
            if name in variants
        }

    def _explained(self, plan: JobPlan, device_set: DeviceSet, reason: str) -> JobPlan:
        """Return `plan` with the reason why devices outside its set have no share."""
        names = device_set.names
        others = [name for name in self._by_name if name not in names]
        reasons = (f"{name}: no share, {reason}" for name in others)
        return replace(plan, reasons=(*plan.reasons, *reasons)) if others else plan


def candidates_of(
    infos: Sequence[DeviceInfo],
    candidates: Sequence[Candidate],
    machine: Sequence[DeviceInfo] = (),
) -> list[Candidate]:
    """Return the candidates of these devices, with their models beside each other."""
    beside = co_runners_of(infos, machine)
    return [c.beside(beside[c.info.name]) for c in candidates if c.info.name in beside]


def _only(use: DeviceUse) -> Candidate:
    """Return the candidate with its one variant, so that a trial changes nothing else."""
    return with_only(use.candidate.beside(use.co_runners), use.variant)


def _fewest_runs(plan: JobPlan, uses: Mapping[str, DeviceUse]) -> int:
    """Return the fewest runs of a device of `plan` beside its co-runners, of such a share."""
    return min(uses[a.device].runs(a.plan.share) for a in plan.assignments)
