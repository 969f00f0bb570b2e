"""Tables of a simulated machine: a plan with its bound, or a learning loop."""

from __future__ import annotations

from collections.abc import Sequence

from hetsched.config import load_profile
from hetsched.errors import UsageError
from hetsched.planner.records import Assignment, JobPlan
from hetsched.simulate.machine import (
    VARIANT,
    ChunkTimings,
    LearningRun,
    SimulatedMachine,
    device_seconds,
    ideal_plan,
    learn,
    makespan,
)
from hetsched.simulate.profile import machine_of
from hetsched.simulate.runs import Cell, ExperimentResult, Table
from hetsched.text import grouped_rows

MAX_LISTED_CHUNKS = 12
"""Maximum number of a device's chunks listed in full."""
MAX_LISTED_SHARES = 4
MAX_RUNS = 1000
MAX_NOISE = 0.3
"""Largest relative noise of phase times; with more, models can't be learnt."""


def run_experiment(
    profile: str, runs: int | None, noise: float | None, *, seed: int
) -> ExperimentResult:
    """Plan the machine with known costs; or run it, with models learnt from noisy timings only."""
    if noise is not None and runs is None:
        raise UsageError("--noise needs --runs: without it nothing is measured")
    noise = 0.02 if noise is None else noise
    if not 0 <= noise <= MAX_NOISE:
        raise UsageError(f"--noise {noise:g}: must be 0 to {MAX_NOISE:g}")
    config, source = load_profile(profile)
    machine = machine_of(config, source)
    if runs is not None and not 1 <= runs <= MAX_RUNS:
        raise UsageError(f"--runs {runs}: must be 1 to {MAX_RUNS}")
    plan = ideal_plan(machine)
    timings = machine.play(plan)
    ideal = makespan(timings)
    first = _shares(plan, timings, machine)
    if runs is not None:
        learnt = learn(machine, runs, noise, seed)
        first, plan = _learning(learnt, ideal, noise, seed), learnt[-1].plan
    return ExperimentResult("machine", source, (first, _bound(machine, ideal), _reasons(plan)))


def _learning(learnt: Sequence[LearningRun], ideal: float, noise: float, seed: int) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for number, run in enumerate(learnt, start=1):
        predicted, excess = run.plan.predicted_seconds, 100 * (run.noiseless / ideal - 1)
        shares = [f"{a.device} {a.plan.share}" for a in run.plan.assignments][::-1]
        if len(shares) > MAX_LISTED_SHARES:
            shares[MAX_LISTED_SHARES:] = ["..."]
        times = (1e6 * run.measured, 1e6 * run.noiseless)
        rows.append((number, predicted and 1e6 * predicted, *times, excess, ", ".join(shares)))
    return Table.of(
        f"{len(learnt)} runs from nothing, noise {noise:g}, seed {seed}",
        "run; predicted, us; measured, us; without noise, us; above known, %; shares",
        rows,
    )


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
    reasons = [
        reason.replace(f"by the speed of {VARIANT}", "by its speed") for reason in plan.reasons
    ]
    pairs = [reason.split(": ", 1) for reason in reasons]
    groups = grouped_rows(pairs, lambda pair: pair[0])
    rows = [(name, members[0][1]) for name, members in groups]
    return Table.of("Reasons for the shares", "device; reason", rows, 2)
