"""Probes: a few units for devices that the ordinary plan leaves out. Pure.

A device with fewer than three runs always gets one; later it gets one now and then
(`models.evidence.probe_state`). A probe is a chunk of the job like any other, but its time isn't
counted in the balance of the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from hetsched.models import SpeedFunction
from hetsched.models.evidence.probe_state import MIN_OBSERVED_RUNS, ProbeState
from hetsched.planner.records import Candidate, JobPlan
from hetsched.units import counted

MAX_COST = 0.01
"""Time of a probe of more than one unit, as a fraction of the job's predicted time."""
MAX_TIME_RATIO = 1.5
"""The job's time with a probe of a single unit over that without it."""
MAX_PROBED_FRACTION = 0.5
"""Part of the units that all probes of a run may take, but at least one. Arbitrary."""


@dataclass(frozen=True)
class PlannedProbe:
    """`units` for `device`; `reason`: why it is probed in this run."""

    device: str
    units: int
    reason: str


def choose_probes(
    plan: JobPlan, candidates: Sequence[Candidate], states: Mapping[str, ProbeState]
) -> tuple[PlannedProbe, ...]:
    """Return the probes of the next run, beside `plan`.

    Parameters
    ----------
    plan : JobPlan
        None of its devices is probed. Without a prediction nothing is.
    candidates : sequence of Candidate
        With their runs so far. Those that `plan` couldn't use aren't probed.
    states : mapping of device to ProbeState
        Devices without one have never been without a share.
    """
    total = plan.predicted_seconds
    if total is None:
        return ()
    remaining = max(1, int(plan.load * MAX_PROBED_FRACTION))
    probes: list[PlannedProbe] = []
    due = _due(plan, candidates, states)
    if plan.shares.keys() <= {device for _, device in due}:
        # No other device could do the rest: its share decides what its last probes mean.
        due = [(urgency, device) for urgency, device in due if device not in plan.shares]
    for urgency, device in sorted(due):
        units = min(remaining, _units(plan.curves[device], total, is_forced=urgency < 0))
        if units:
            state = states.get(device, ProbeState())
            probes.append(PlannedProbe(device, units, _reason(state, is_forced=urgency < 0)))
            remaining -= units
    return tuple(probes)


def due_devices(plan: JobPlan, states: Mapping[str, ProbeState]) -> frozenset[str]:
    """Return the devices whose turn it is, by their states."""
    shares = plan.shares
    return frozenset(
        device
        for device, state in states.items()
        if state.is_contradicted or (state.is_due and device not in shares)
    )


def _due(
    plan: JobPlan, candidates: Sequence[Candidate], states: Mapping[str, ProbeState]
) -> list[tuple[int, str]]:
    """Return (urgency, device) of devices to probe, the lowest first; below 0: must be probed."""
    usable = {candidate.info.name for candidate in plan.candidates}
    due = []
    for candidate in candidates:
        device = candidate.info.name
        if device not in usable or device not in plan.curves:
            continue
        state = states.get(device, ProbeState())
        if state.is_contradicted:
            # Also if it has a share now: the next probe decides what the last ones mean.
            due.append((0, device))
        elif device in plan.shares:
            continue
        elif is_hardly_measured(candidate):
            due.append((sum(candidate.run_counts.values()) - MIN_OBSERVED_RUNS, device))
        elif state.is_due:
            due.append((1, device))
    return due


def is_hardly_measured(candidate: Candidate) -> bool:
    """Return whether it has too few runs to be left out."""
    return sum(candidate.run_counts.values()) < MIN_OBSERVED_RUNS


def _units(curve: SpeedFunction, total: float, *, is_forced: bool) -> int:
    """Return the units of a probe beside a job of `total` seconds; 0: it would cost too much."""
    unit_seconds = float(curve.time(1.0))
    budget = MAX_COST * total
    if unit_seconds > budget:
        return int(is_forced or unit_seconds <= MAX_TIME_RATIO * total)
    units = 1
    while float(curve.time(2.0 * units)) <= budget:
        units *= 2
    return units


def _reason(state: ProbeState, *, is_forced: bool) -> str:
    if is_forced:
        return f"fewer than {MIN_OBSERVED_RUNS} runs measured"
    if state.is_contradicted:
        return f"its last probe took {state.ratio:.2g} times as long as predicted"
    return f"no share in the last {counted(state.idle_runs, 'run')}"


def shares_with_probes(plan: JobPlan, probes: Sequence[PlannedProbe]) -> dict[str, int]:
    """Return the shares of `plan` and of `probes`, by device; they sum to the plan's load."""
    probed = {probe.device: probe.units for probe in probes}
    shares = {device: share for device, share in plan.shares.items() if device not in probed}
    ordinary = sum(shares.values())
    rest = plan.load - sum(probed.values())
    if not ordinary:
        return probed if not rest else plan.shares
    shares = {device: share * rest // ordinary for device, share in shares.items()}

    def end_with_another(device: str) -> float:
        return float(plan.curves[device].time(shares[device] + 1.0))

    for _ in range(rest - sum(shares.values())):  # fewer than there are devices
        shares[min(shares, key=end_with_another)] += 1
    return shares | probed


def marked(plan: JobPlan, probes: Sequence[PlannedProbe]) -> JobPlan:
    """Return `plan`, made for `shares_with_probes`, with its probes marked and explained."""
    by_device = {probe.device: probe for probe in probes}
    assignments = tuple(
        replace(assignment, is_probe=assignment.device in by_device)
        for assignment in plan.assignments
    )
    reasons = [reason for reason in plan.reasons if reason.partition(":")[0] not in by_device] + [
        f"{probe.device}: {counted(probe.units, 'unit')} as a probe: {probe.reason}"
        for probe in probes
    ]
    return replace(plan, assignments=assignments, reasons=tuple(reasons))
