"""The plan of each run of one kind of job: the planner proposes, a Balancer decides.

Data flow one way. The caller passes in candidates if they are needed; the planner computes a job
plan; the Balancer decides whether to move to its shares; the planner cuts the chosen shares into
chunks. Devices without a share are probed beside that plan (`planner.rebalancing.probes`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from hetsched.device import DeviceInfo
from hetsched.models.evidence.probe_state import ProbeState
from hetsched.partition import Balancer, Distribution
from hetsched.planner.device_sets.set_state import SetState
from hetsched.planner.device_sets.teams import plan_fixed_shares, plan_with_device_sets
from hetsched.planner.job_planner import Candidate, JobPlan
from hetsched.planner.rebalancing.plan_comparison import (
    ProposedCurve,
    is_same_split,
    shares_of,
    working_devices,
)
from hetsched.planner.rebalancing.probes import (
    choose_probes,
    due_devices,
    marked,
    shares_with_probes,
)
from hetsched.planner.rebalancing.size_trials import TrialState, marked_trials, with_size_trials
from hetsched.planner.totals import PlanCache

MAX_REPEATS = 8
"""Runs of a good plan before the models are consulted again: planning takes milliseconds, but new
measurements should count eventually. Arbitrary."""
MAX_STEADY_REPEATS = 32
"""The same for a plan that the models have confirmed: twice as many after each time. Arbitrary."""
RUNS_PER_REPEAT = 4
"""Runs so far per repeat of a plan with a device behind a link: the first runs measure the sizes
of its chunks, and one that looked fast is known to be slow after a single run. Arbitrary."""
MAX_PREDICTION_ERROR = 0.10
"""Relative error of the predicted time up to which a plan is repeated unchanged."""
TOLERANCE = 0.04
"""The Balancer's tolerance. Moving units from the slower to the faster of two devices gains at
most half of the spread, so with 0.05 or more a spread of 0.1 could persist. Decisions use medians
of runs, whose noise is smaller."""


class Rebalancer:
    """The choice of the plan of each run of one kind of job. For the planner's thread only.

    Parameters
    ----------
    load : int, units
    devices : sequence of str
        The devices that may take part.
    cache : PlanCache, optional
        Results of earlier plans, including other loads'; None: kept for this load only.
    """

    def __init__(self, load: int, devices: Sequence[str], cache: PlanCache | None = None) -> None:
        self._cache = PlanCache() if cache is None else cache
        self._load = load
        self._devices = tuple(devices)
        self._runs = 0
        self._sets = SetState()
        self._working: frozenset[str] = frozenset()
        self._size_trials = TrialState()
        self._probe_states: dict[str, ProbeState] = {}
        self._too_costly: frozenset[str] = frozenset()
        self._repeats = MAX_REPEATS
        self._start_over()

    def _start_over(self) -> None:
        self._curves = [ProposedCurve() for _ in self._devices]
        self._balancer = Balancer(
            self._load,
            len(self._devices),
            tolerance=TOLERANCE,
            stop_when_seen=False,
            models=self._curves,
        )
        self._plan: JobPlan | None = None  # without probes
        self._issued: JobPlan | None = None
        self._uses = 0
        self._is_unreported = False

    @property
    def needs_candidates(self) -> bool:
        """Whether the next run needs `replan`; otherwise it can `repeat` the last plan."""
        return self._must_start_over or self._balancer.needs_proposal or self._is_probe_due

    @property
    def probe_states(self) -> Mapping[str, ProbeState]:
        """The states of the devices without a share in the last reported run, by name."""
        return self._probe_states

    @property
    def _is_probe_due(self) -> bool:
        if self._plan is None or self._issued is None:
            return False
        # After a probe: a device with too few runs is probed again at once.
        due = due_devices(self._plan, self._probe_states) - self._too_costly
        return bool(due) or self._issued.has_probes

    @property
    def _must_start_over(self) -> bool:
        """Return whether there is no balance to keep.

        This is the case after a trial, or after runs that all failed because a device died.
        """
        has_failed = self._is_unreported and self._uses >= MAX_REPEATS
        return has_failed or (self._plan is not None and self._is_trial(self._plan))

    def repeat(self) -> JobPlan:
        """Return the last plan for the next run. Call only if `needs_candidates` is false."""
        assert self._plan is not None and not self.needs_candidates, "call replan()"
        self._balancer.ask()
        return self._record_issued(self._plan, self._plan)

    def replan(
        self,
        candidates: Sequence[Candidate],
        machine: Sequence[DeviceInfo] = (),
        past_jobs: int = 0,
    ) -> JobPlan:
        """Make the plan of the next run from the current models.

        Parameters
        ----------
        candidates : sequence of Candidate
            With their current models.
        machine : sequence of DeviceInfo
            All devices of the machine; those of the candidates are added.
        past_jobs : int
            Of this kind, if known: those before this rebalancer, and repetitions, included.

        Raises
        ------
        DataError, UsageError
            As `plan_job`.
        """
        candidates = self._with_last_plans(candidates)
        present = self._sets.present
        proposal = plan_with_device_sets(
            self._load,
            candidates,
            self._working,
            max(self._runs, past_jobs),
            state=self._sets,
            machine=machine,
            cache=self._cache,
        )
        if self._must_start_over or self._sets.present != present:
            self._start_over()
        if self._balancer.needs_proposal:
            self._propose(proposal)
        shares = self._balancer.ask().shares
        plan = proposal
        if shares_of(proposal, self._devices) != shares:
            fixed_shares = dict(zip(self._devices, shares, strict=True))
            plan = self._plan_of(fixed_shares, candidates, machine)
        self._uses = 0
        is_confirmed = self._plan is not None and is_same_split(plan, self._plan)
        self._repeats = min(2 * self._repeats, MAX_STEADY_REPEATS) if is_confirmed else MAX_REPEATS
        self._read_probe_states(candidates)
        issued = self._with_probes(plan, candidates, machine)
        if issued is plan and not (plan.is_exploring or self._is_trial(plan)):
            issued = self._with_size_trials(plan, candidates, machine)
        return self._record_issued(plan, issued)

    def _with_size_trials(
        self, plan: JobPlan, candidates: Sequence[Candidate], machine: Sequence[DeviceInfo]
    ) -> JobPlan:
        """Return the plan with sizes to be measured; `plan` itself if there are none."""
        trying = with_size_trials(plan, candidates, self._size_trials, self._runs + 1)
        return marked_trials(self._plan_of(plan.shares, trying, machine)) if trying else plan

    def _plan_of(
        self,
        shares: Mapping[str, int],
        candidates: Sequence[Candidate],
        machine: Sequence[DeviceInfo],
    ) -> JobPlan:
        return plan_fixed_shares(
            self._load,
            candidates,
            shares,
            device_set=self._sets.present,
            machine=machine,
            cache=self._cache,
        )

    def _with_last_plans(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """Return the candidates with the plans of the last run, which they may keep."""
        assignments = () if self._plan is None else self._plan.assignments
        plans = {assignment.device: assignment.plan for assignment in assignments}
        return [
            replace(candidate, last_plan=plans.get(candidate.info.name))
            if candidate.info.link
            else candidate
            for candidate in candidates
        ]

    def _read_probe_states(self, candidates: Sequence[Candidate]) -> None:
        """Take over what other processes have stored."""
        for candidate in candidates:
            if candidate.probe_state is not None:
                self._probe_states[candidate.info.name] = candidate.probe_state

    def _with_probes(
        self, plan: JobPlan, candidates: Sequence[Candidate], machine: Sequence[DeviceInfo]
    ) -> JobPlan:
        """Return the plan with the probes that are due; `plan` itself if there are none."""
        if self._is_trial(plan):
            return plan
        probes = choose_probes(plan, candidates, self._probe_states)
        probed = {probe.device for probe in probes}
        self._too_costly = due_devices(plan, self._probe_states) - probed
        if not probes:
            return plan
        shares = shares_with_probes(plan, probes)
        probing = self._plan_of(shares, candidates, machine)
        return marked(probing, probes)

    def _propose(self, proposal: JobPlan) -> None:
        """Have the Balancer choose between the present shares and those of `proposal`."""
        for device, planned in zip(self._devices, self._curves, strict=True):
            planned.curve = proposal.curves.get(device)
        seconds = proposal.predicted_seconds
        if seconds is None or self._is_trial(proposal) or self._lacks_curves(proposal):
            seconds = math.nan  # try it regardless of its gain
        self._balancer.propose(Distribution(shares_of(proposal, self._devices), seconds, math.nan))

    def _record_issued(self, plan: JobPlan, issued: JobPlan) -> JobPlan:
        """Record `issued`, which is `plan` or adds probes to it, and return it."""
        self._plan, self._issued, self._is_unreported = plan, issued, True
        self._uses += 1
        self._runs += 1
        self._sets.runs = self._runs
        if not self._is_trial(plan):
            self._working = working_devices(plan)
        return issued

    def _is_trial(self, plan: JobPlan) -> bool:
        """Return whether shares only serve to measure: an unmeasured device or a device change.

        Devices with shares keep them while they try another variant.
        """
        return plan.predicted_seconds is None or (
            plan.is_exploring and working_devices(plan) != self._working
        )

    def _lacks_curves(self, proposal: JobPlan) -> bool:
        """Return whether the last plan has devices without a curve in `proposal`."""
        assignments = () if self._plan is None else self._plan.assignments
        return any(assignment.device not in proposal.curves for assignment in assignments)

    def report(self, plan: JobPlan, seconds: Mapping[str, float], makespan: float) -> None:
        """Report a run of `plan`: seconds of each device with a share, and of the whole run.

        Ignored unless `plan` is the last one issued and each of its devices has a positive time.
        """
        if not self._is_last(plan):
            return
        if any(not seconds.get(a.device, 0.0) > 0 for a in plan.assignments):
            return
        self._is_unreported = False
        self._record_probes(
            plan, {a.device: seconds[a.device] / a.plan.share for a in plan.assignments}
        )
        if plan.has_probes:
            return
        self._balancer.tell([seconds.get(device, 0.0) for device in self._devices])
        is_due = self._uses >= self._max_repeats(plan) or self._sets.wants_plan
        is_due = is_due or plan.tries_sizes
        if is_due or plan.is_exploring or plan.prediction_error(makespan) > MAX_PREDICTION_ERROR:
            self._balancer.reconsider()

    def _max_repeats(self, plan: JobPlan) -> int:
        """Return the runs of `plan` before the models are consulted again."""
        has_link = any(a.candidate is not None and a.candidate.info.link for a in plan.assignments)
        if not has_link:
            return self._repeats
        runs_per_repeat = RUNS_PER_REPEAT * (2 if self._size_trials.trials else 1)
        return min(MAX_REPEATS, 1 + self._runs // runs_per_repeat)

    def report_moved_work(self, plan: JobPlan, paces: Mapping[str, float]) -> None:
        """Report a run of `plan` in which idle devices stole chunks.

        Its shares aren't kept: the next plan follows the models, which have learnt from this run.

        Parameters
        ----------
        plan : JobPlan
        paces : mapping of device to float, seconds per unit
            Of the devices that ran chunks.
        """
        if self._is_last(plan):
            self._record_probes(plan, paces)
            self._start_over()

    def _record_probes(self, issued: JobPlan, paces: Mapping[str, float]) -> None:
        """Record which devices had nothing to do or were probed.

        After a probe that contradicts its model, and after its repeats, the next plan follows the
        models, which have learnt from it.
        """
        assert self._plan is not None, "it was issued"
        probes = {a.device: a for a in issued.assignments if a.is_probe}
        is_decisive = False
        for device in (candidate.info.name for candidate in self._plan.candidates):
            before = self._probe_states.pop(device, ProbeState())
            probe, pace = probes.get(device), paces.get(device)
            if probe is not None and probe.pace and pace:
                after = before.after_probe(pace / probe.pace)
                is_decisive = is_decisive or after.is_contradicted or before.is_contradicted
            elif device in self._plan.shares:
                continue
            else:
                after = before.after_idle_run()
            self._probe_states[device] = after
        if is_decisive:
            self._start_over()

    def _is_last(self, plan: JobPlan) -> bool:
        if not self._is_unreported or self._issued is None:
            return False
        return plan.is_same_work(self._issued)
