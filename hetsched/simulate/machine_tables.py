"""Tables and charts of `simulate machine`: a plan with its bound, or a learning loop."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hetsched.device import ChunkTimes
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
    return ExperimentResult(
        "machine",
        source,
        (_shares(plan, timings, machine), _bound(machine, makespan(timings)), _reasons(plan)),
        tuple(_pipelines(machine, timings)),
    )


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
    table = Table(
        f"{runs} runs from nothing, noise {noise:g}, seed {seed}",
        ("run", "predicted, us", "measured, us", "without noise, us", "above known, %", "shares"),
        tuple(_run_row(number, run, ideal) for number, run in enumerate(learning, start=1)),
    )
    return ExperimentResult(
        "machine",
        source,
        (table, _bound(machine, ideal), _reasons(learning[-1].plan)),
        (_makespans(learning, ideal), _share_chart(machine, learning)),
    )


def _run_row(number: int, run: LearningRun, ideal: float) -> tuple[Cell, ...]:
    predicted = run.plan.predicted_seconds
    return (
        number,
        None if predicted is None else _us(predicted),
        _us(run.measured),
        _us(run.noiseless),
        100 * (run.noiseless / ideal - 1),
        _first_words([f"{a.device} {a.plan.share}" for a in run.plan.assignments][::-1]),
    )


def _shares(plan: JobPlan, timings: dict[str, ChunkTimings], machine: SimulatedMachine) -> Table:
    idle = [device.name for device in machine.devices if device.name not in timings]
    assignments = {assignment.device: assignment for assignment in plan.assignments}
    groups = grouped_rows([*assignments, *idle], lambda name: name, MAX_GROUP_ROWS)
    return Table(
        f"{machine.load} units on {len(machine.devices)} devices",
        ("device", "share", "us", "mode", "slots", "chunks"),
        tuple(
            _share_row(name, [assignments[m] for m in members if m in assignments], timings)
            for name, members in groups
        ),
    )


def _share_row(
    name: str, members: Sequence[Assignment], timings: dict[str, ChunkTimings]
) -> tuple[Cell, ...]:
    """Return the row of a device, or of several equal cores with the range of their shares."""
    if not members:
        return (name, 0, None, None, None, None)
    shares = [assignment.plan.share for assignment in members]
    first = members[0]
    slots = first.slots if first.slot_memory else None
    return (
        name,
        shares[0] if len(set(shares)) == 1 else f"{min(shares)} to {max(shares)}",
        _us(max(device_seconds(timings[assignment.device]) for assignment in members)),
        first.plan.mode.value if first.slot_memory else None,
        slots,
        _chunks(first) if len(members) == 1 else None,
    )


def _chunks(assignment: Assignment) -> str:
    groups = assignment.plan.sub_distributions
    listed = " | ".join(" ".join(map(str, chunks)) for chunks in groups)
    count = sum(map(len, groups))
    if count <= MAX_LISTED_CHUNKS:
        return listed
    half = MAX_LISTED_CHUNKS // 2
    chunks = assignment.plan.chunks
    words = [*map(str, chunks[:half]), "...", *map(str, chunks[-half:])]
    return f"{' '.join(words)} ({count})"


def _bound(machine: SimulatedMachine, planned: float) -> Table:
    bound = machine.bound()
    return Table(
        "Bound: no split into whole units is faster, with any plans",
        ("what", "us", "plan above it, %"),
        (
            ("plan, costs known", _us(planned), None),
            ("bound", _us(bound), 100 * (planned / bound - 1)),
        ),
    )


def _reasons(plan: JobPlan) -> Table:
    """Return one reason per device or per group of equal cores."""
    reasons = [
        reason.replace(f"by the speed of {VARIANT}", "by its speed") for reason in plan.reasons
    ]
    pairs = [tuple(reason.split(": ", 1)) for reason in reasons]
    groups = grouped_rows(pairs, lambda pair: pair[0], MAX_GROUP_ROWS)
    rows = tuple((name, members[0][1]) for name, members in groups)
    return Table("Reasons for the shares", ("device", "reason"), rows, 2)


def _pipelines(machine: SimulatedMachine, timings: dict[str, ChunkTimings]) -> list[Chart]:
    """Chart units copied in, computed and copied out over time, for the first devices with a link.

    Without such devices: the time of each device.
    """
    linked = [
        device.name for device in machine.devices if device.info.link and device.name in timings
    ]
    if linked:
        return [_pipeline(name, timings[name]) for name in linked[:MAX_LINKED_DEVICES]]
    times = tuple(_ms(device_seconds(chunks)) for chunks in timings.values())
    bars = Series("share", tuple(range(len(times))), times, "bars")
    return [Chart("Devices, in order", "device", "ms", (bars,))]


def _pipeline(name: str, chunks: ChunkTimings) -> Chart:
    phases = {"copied in": _copy_in_end, "computed": _compute_end, "copied out": _copy_out_end}
    units = np.cumsum([units for units, _ in chunks])
    series = tuple(
        Series(
            phase,
            (0.0, *(_ms(end(times)) for _, times in chunks)),
            (0.0, *(float(count) for count in units)),
        )
        for phase, end in phases.items()
    )
    return Chart(f"{name}: units through its pipeline", "ms", "units", series)


def _copy_in_end(times: ChunkTimes) -> float:
    return times.copy_in[1] if times.copy_in else 0.0


def _compute_end(times: ChunkTimes) -> float:
    return times.compute[1]


def _copy_out_end(times: ChunkTimes) -> float:
    return times.end


def _makespans(learning: Sequence[LearningRun], ideal: float) -> Chart:
    numbers = tuple(float(number) for number in range(1, len(learning) + 1))
    return Chart(
        "Makespan, run by run",
        "run",
        "ms",
        (
            Series("measured", numbers, tuple(_ms(run.measured) for run in learning)),
            Series("without noise", numbers, tuple(_ms(run.noiseless) for run in learning)),
            Series("costs known", numbers, (_ms(ideal),) * len(numbers)),
        ),
    )


def _share_chart(machine: SimulatedMachine, learning: Sequence[LearningRun]) -> Chart:
    """Chart the shares of the first devices with a link, and of all others together."""
    numbers = tuple(float(number) for number in range(1, len(learning) + 1))
    linked = [device.name for device in machine.devices if device.info.link][:MAX_LINKED_DEVICES]
    shares = [{a.device: a.plan.share for a in run.plan.assignments} for run in learning]
    series = [
        Series(name, numbers, tuple(float(s.get(name, 0)) for s in shares)) for name in linked
    ]
    remainder = tuple(
        float(machine.load - sum(share.get(name, 0) for name in linked)) for share in shares
    )
    return Chart(
        "Shares, run by run", "run", "units", (*series, Series("others", numbers, remainder))
    )


def _first_words(words: Sequence[str]) -> str:
    shortened = ", ".join(words[:MAX_LINKED_DEVICES])
    return shortened if len(words) <= MAX_LINKED_DEVICES else f"{shortened}, ..."


def _us(seconds: float) -> float:
    return 1e6 * seconds


def _ms(seconds: float) -> float:
    return 1e3 * seconds
