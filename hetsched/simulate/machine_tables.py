"""Tables and charts of `simulate machine`: a plan with its bound, or a learning loop."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from hetsched.planner.job_planner import Assignment, JobPlan
from hetsched.simulate.learning import LearningRun, ideal_plan, learn
from hetsched.simulate.machine import (
    VARIANT,
    ChunkTimings,
    SimulatedMachine,
    device_seconds,
    makespan,
)
from hetsched.simulate.results import Cell, Chart, ExperimentResult, Series, Table
from hetsched.text import MAX_GROUP_ROWS, grouped_rows

MAX_LISTED_CHUNKS = 12
"""Maximum number of a device's chunks listed in full."""
MAX_LINKED_DEVICES = 4
"""Maximum number of devices with a link whose pipelines are drawn."""


def plan_result(machine: SimulatedMachine, source: str) -> ExperimentResult:
    """Plan the machine with known costs; show the plan, its makespan and its bound."""
    plan = ideal_plan(machine)
    timings = machine.play(plan)
    tables = _shares(plan, timings, machine), _bound(machine, makespan(timings)), _reasons(plan)
    return ExperimentResult("machine", source, tables, tuple(_pipelines(machine, timings)))


def learning_result(
    machine: SimulatedMachine,
    source: str,
    runs: int,
    *,
    noise: float,
    seed: int,
    uses_measured_total: bool,
) -> ExperimentResult:
    """Run the machine repeatedly, with models learnt only from noisy timings.

    Raises as `plan_result`.
    """
    ideal = makespan(machine.play(ideal_plan(machine)))
    learning = learn(machine, runs, noise, seed, uses_measured_total=uses_measured_total)
    table = Table.of(
        f"{runs} runs from nothing, noise {noise:g}, seed {seed}",
        "run; predicted, us; measured, us; without noise, us; above known, %; shares",
        [_run_row(number, run, ideal) for number, run in enumerate(learning, start=1)],
    )
    tables = table, _bound(machine, ideal), _reasons(learning[-1].plan)
    charts = _makespans(learning, ideal), _share_chart(machine, learning)
    return ExperimentResult("machine", source, tables, charts)


def _run_row(number: int, run: LearningRun, ideal: float) -> tuple[Cell, ...]:
    predicted = run.plan.predicted_seconds
    shares = [f"{a.device} {a.plan.share}" for a in run.plan.assignments][::-1]
    if len(shares) > MAX_LINKED_DEVICES:
        shares[MAX_LINKED_DEVICES:] = ["..."]
    return (
        number,
        None if predicted is None else 1e6 * predicted,
        1e6 * run.measured,
        1e6 * run.noiseless,
        100 * (run.noiseless / ideal - 1),
        ", ".join(shares),
    )


def _shares(plan: JobPlan, timings: dict[str, ChunkTimings], machine: SimulatedMachine) -> Table:
    idle = [device.name for device in machine.devices if device.name not in timings]
    assignments = {assignment.device: assignment for assignment in plan.assignments}
    groups = grouped_rows([*assignments, *idle], lambda name: name, MAX_GROUP_ROWS)
    return Table.of(
        f"{machine.load} units on {len(machine.devices)} devices",
        "device; share; us; mode; slots; chunks",
        [
            _share_row(name, [assignments[m] for m in members if m in assignments], timings)
            for name, members in groups
        ],
    )


def _share_row(
    name: str, members: Sequence[Assignment], timings: dict[str, ChunkTimings]
) -> tuple[Cell, ...]:
    """Return the row of a device, or of several equal cores with the range of their shares."""
    if not members:
        return (name, 0, None, None, None, None)
    shares = [assignment.plan.share for assignment in members]
    first = members[0]
    return (
        name,
        shares[0] if len(set(shares)) == 1 else f"{min(shares)} to {max(shares)}",
        1e6 * max(device_seconds(timings[assignment.device]) for assignment in members),
        first.plan.mode.value if first.slot_memory else None,
        first.slots if first.slot_memory else None,
        _chunks(first) if len(members) == 1 else None,
    )


def _chunks(assignment: Assignment) -> str:
    chunks = assignment.plan.chunks
    if len(chunks) <= MAX_LISTED_CHUNKS:
        groups = assignment.plan.sub_distributions
        return " | ".join(" ".join(map(str, group)) for group in groups)
    half = MAX_LISTED_CHUNKS // 2
    words = [*map(str, chunks[:half]), "...", *map(str, chunks[-half:])]
    return f"{' '.join(words)} ({len(chunks)})"


def _bound(machine: SimulatedMachine, planned: float) -> Table:
    bound = machine.bound()
    rows = (
        ("plan, costs known", 1e6 * planned, None),
        ("bound", 1e6 * bound, 100 * (planned / bound - 1)),
    )
    title = "Bound: no split into whole units is faster, with any plans"
    return Table.of(title, "what; us; plan above it, %", rows)


def _reasons(plan: JobPlan) -> Table:
    """Return one reason per device or per group of equal cores."""
    reasons = [
        reason.replace(f"by the speed of {VARIANT}", "by its speed") for reason in plan.reasons
    ]
    pairs = [reason.split(": ", 1) for reason in reasons]
    groups = grouped_rows(pairs, lambda pair: pair[0], MAX_GROUP_ROWS)
    rows = [(name, members[0][1]) for name, members in groups]
    return Table.of("Reasons for the shares", "device; reason", rows, 2)


def _pipelines(machine: SimulatedMachine, timings: dict[str, ChunkTimings]) -> list[Chart]:
    """Chart units copied in, computed and copied out over time, for the first devices with a link.

    Without such devices: the time of each device.
    """
    linked = [name for name in _linked(machine) if name in timings]
    if linked:
        return [_pipeline(name, timings[name]) for name in linked[:MAX_LINKED_DEVICES]]
    times = [1e3 * device_seconds(chunks) for chunks in timings.values()]
    bars = Series.of("share", times, range(len(times)), "bars")
    return [Chart("Devices, in order", "device", "ms", (bars,))]


def _linked(machine: SimulatedMachine) -> list[str]:
    return [device.name for device in machine.devices if device.info.link]


def _pipeline(name: str, chunks: ChunkTimings) -> Chart:
    ends = {
        "copied in": [times.copy_in[1] if times.copy_in else 0.0 for _, times in chunks],
        "computed": [times.compute[1] for _, times in chunks],
        "copied out": [times.end for _, times in chunks],
    }
    units = [0, *itertools.accumulate(units for units, _ in chunks)]
    series = [
        Series.of(phase, units, (1e3 * end for end in (0.0, *phase_ends)))
        for phase, phase_ends in ends.items()
    ]
    return Chart(f"{name}: units through its pipeline", "ms", "units", tuple(series))


def _makespans(learning: Sequence[LearningRun], ideal: float) -> Chart:
    series = (
        Series.of("measured", (1e3 * run.measured for run in learning)),
        Series.of("without noise", (1e3 * run.noiseless for run in learning)),
        Series.of("costs known", [1e3 * ideal] * len(learning)),
    )
    return Chart("Makespan, run by run", "run", "ms", series)


def _share_chart(machine: SimulatedMachine, learning: Sequence[LearningRun]) -> Chart:
    """Chart the shares of the first devices with a link, and of all others together."""
    linked = _linked(machine)[:MAX_LINKED_DEVICES]
    shares = [{a.device: a.plan.share for a in run.plan.assignments} for run in learning]
    series = [Series.of(name, (share.get(name, 0) for share in shares)) for name in linked]
    others = [machine.load - sum(share.get(name, 0) for name in linked) for share in shares]
    series.append(Series.of("others", others))
    return Chart("Shares, run by run", "run", "units", tuple(series))
