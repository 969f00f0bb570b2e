"""Tables of a simulated machine: a plan with its bound, or a learning loop."""

from __future__ import annotations

from collections.abc import Sequence

from hetsched.planner.records import Assignment, JobPlan
from hetsched.simulate.machine import (
    VARIANT,
    ChunkTimings,
    SimulatedMachine,
    device_seconds,
    ideal_plan,
    learn,
    makespan,
)
from hetsched.simulate.runs import Cell, ExperimentResult, Table
from hetsched.text import grouped_rows

MAX_LISTED_CHUNKS = 12
"""Maximum number of a device's chunks listed in full."""
MAX_LISTED_SHARES = 4
MAX_RUNS = 1000


def plan_result(machine: SimulatedMachine, source: str) -> ExperimentResult:
    """Plan the machine with known costs; show the plan, its makespan and its bound."""
    plan = ideal_plan(machine)
    timings = machine.play(plan)
    tables = _shares(plan, timings, machine), _bound(machine, makespan(timings)), _reasons(plan)
    return ExperimentResult("machine", source, tables)


def learning_result(
    machine: SimulatedMachine, source: str, runs: int, noise: float, seed: int
) -> ExperimentResult:
    """Run the machine repeatedly, with models learnt only from noisy timings."""
    ideal = makespan(machine.play(ideal_plan(machine)))
    learning = learn(machine, runs, noise, seed)
    rows: list[tuple[Cell, ...]] = []
    for number, run in enumerate(learning, start=1):
        predicted, excess = run.plan.predicted_seconds, 100 * (run.noiseless / ideal - 1)
        shares = [f"{a.device} {a.plan.share}" for a in run.plan.assignments][::-1]
        if len(shares) > MAX_LISTED_SHARES:
            shares[MAX_LISTED_SHARES:] = ["..."]
        times = (1e6 * run.measured, 1e6 * run.noiseless)
        rows.append((number, predicted and 1e6 * predicted, *times, excess, ", ".join(shares)))
    table = Table.of(
        f"{runs} runs from nothing, noise {noise:g}, seed {seed}",
        "run; predicted, us; measured, us; without noise, us; above known, %; shares",
        rows,
    )
    tables = table, _bound(machine, ideal), _reasons(learning[-1].plan)
    return ExperimentResult("machine", source, tables)


def _shares(plan: JobPlan, timings: dict[str, ChunkTimings], machine: SimulatedMachine) -> Table:
    idle = [device.name for device in machine.devices if device.name not in timings]
    assignments = {assignment.device: assignment for assignment in plan.assignments}
    groups = grouped_rows([*assignments, *idle], lambda name: name)
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
    groups = grouped_rows(pairs, lambda pair: pair[0])
    rows = [(name, members[0][1]) for name, members in groups]
    return Table.of("Reasons for the shares", "device; reason", rows, 2)
