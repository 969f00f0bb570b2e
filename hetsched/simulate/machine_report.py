"""What `machine` found, as tables and charts: a plan with its bounds, or a loop from nothing."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hetsched.device import ChunkTimes
from hetsched.planner.analysis.machine_bound import fluid_bound, whole_unit_bound
from hetsched.planner.job_planner import Assignment, JobPlan
from hetsched.simulate.learning import Learnt, known_plan, learn
from hetsched.simulate.machine import VARIANT, Done, Machine, makespan, seconds
from hetsched.simulate.results import Cell, Chart, Report, Series, Table
from hetsched.text import MAX_CORES, together

MOST_SHOWN = 12
"""Chunks of a device that are listed."""
FEW = 4
"""Devices with a link whose pipelines are drawn."""


def plan_report(machine: Machine, source: str) -> Report:
    """The plan that follows if all costs are known, what it takes, and how good it could be.

    Raises
    ------
    DataError
        A unit is too big for every device.
    """
    plan = known_plan(machine)
    played = machine.play(plan)
    return Report(
        "machine",
        source,
        (_shares(plan, played, machine), _bounds(machine, makespan(played)), _reasons(plan)),
        tuple(_pipelines(machine, played)),
    )


def loop_report(
    machine: Machine, source: str, runs: int, *, noise: float, seed: int, measured_total: bool
) -> Report:
    """So many runs, the first with nothing known: models learnt from noisy timings alone.

    Raises as `plan_report`.
    """
    best = makespan(machine.play(known_plan(machine)))
    found = learn(machine, runs, noise, seed, measured_total=measured_total)
    table = Table(
        f"{runs} runs from nothing, noise {noise:g}, seed {seed}",
        ("run", "predicted, us", "measured, us", "without noise, us", "above known, %", "shares"),
        tuple(_run(number, one, best) for number, one in enumerate(found, start=1)),
    )
    last = found[-1].plan
    return Report(
        "machine",
        source,
        (table, _bounds(machine, best), _reasons(last)),
        (_makespans(found, best), _growth(machine, found)),
    )


def _run(number: int, one: Learnt, best: float) -> tuple[Cell, ...]:
    predicted = one.plan.predicted_seconds
    return (
        number,
        None if predicted is None else _us(predicted),
        _us(one.measured),
        _us(one.really),
        100 * (one.really / best - 1),
        _brief([f"{a.device} {a.plan.share}" for a in one.plan.assignments][::-1]),
    )


def _shares(plan: JobPlan, played: dict[str, Done], machine: Machine) -> Table:
    idle = [d.info.name for d in machine.devices if d.info.name not in played]
    given = {one.device: one for one in plan.assignments}
    rows = together([*given, *idle], lambda name: name, MAX_CORES)
    return Table(
        f"{machine.load} units on {len(machine.devices)} devices",
        ("device", "share", "us", "mode", "slots", "chunks"),
        tuple(_row(name, [given[one] for one in members if one in given], played)
              for name, members in rows),
    )  # fmt: skip


def _row(name: str, members: Sequence[Assignment], played: dict[str, Done]) -> tuple[Cell, ...]:
    """One device, or several cores in a row: their least and most."""
    if not members:
        return (name, 0, None, None, None, None)
    shares = [one.plan.share for one in members]
    first = members[0]
    slots = first.slots if first.memory else None
    return (
        name,
        shares[0] if len(set(shares)) == 1 else f"{min(shares)} to {max(shares)}",
        _us(max(seconds(played[one.device]) for one in members)),
        first.plan.mode.value if first.memory else None,
        slots,
        _chunks(first) if len(members) == 1 else None,
    )


def _chunks(one: Assignment) -> str:
    groups = one.plan.sub_distributions
    listed = " | ".join(" ".join(map(str, chunks)) for chunks in groups)
    count = sum(map(len, groups))
    if count <= MOST_SHOWN:
        return listed
    first, last = one.plan.chunks[: MOST_SHOWN // 2], one.plan.chunks[-MOST_SHOWN // 2 :]
    words = [*map(str, first), "...", *map(str, last)]
    return f"{' '.join(words)} ({count})"


def _bounds(machine: Machine, planned: float) -> Table:
    whole = whole_unit_bound(machine.load, machine.parts())
    fluid = fluid_bound(machine.load, machine.parts())
    rows = [("whole-unit bound", whole), ("fluid bound", fluid)]
    return Table(
        "No split can take less than its bound, whatever the plans",
        ("what", "us", "plan above it, %"),
        (
            ("plan, costs known", _us(planned), None),
            *((name, _us(bound), 100 * (planned / bound - 1)) for name, bound in rows),
        ),
    )


def _reasons(plan: JobPlan) -> Table:
    """One a device, or of the first of several cores."""
    said = [
        reason.replace(f"by the speed of {VARIANT}", "by its speed") for reason in plan.reasons
    ]
    pairs = [tuple(reason.split(": ", 1)) for reason in said]
    rows = together(pairs, lambda pair: pair[0], MAX_CORES)
    return Table("Why so", ("device", "reason"), tuple((n, some[0][1]) for n, some in rows), 2)


def _pipelines(machine: Machine, played: dict[str, Done]) -> list[Chart]:
    """Of the first devices with a link, units in, computed and out over time; else of all."""
    linked = [
        one.info.name for one in machine.devices if one.info.link and one.info.name in played
    ]
    if not linked:
        names = list(played)
        bars = Series("share", tuple(range(len(names))),
                      tuple(_ms(seconds(played[name])) for name in names), "bars")  # fmt: skip
        return [Chart("Devices, in order", "device", "ms", (bars,))]
    return [_pipeline(name, played[name]) for name in linked[:FEW]]


def _pipeline(name: str, done: Done) -> Chart:
    phases = {"copied in": _in, "computed": _computed, "copied out": _out}
    units = np.cumsum([units for units, _ in done])
    series = tuple(
        Series(
            what,
            (0.0, *(_ms(end(times)) for _, times in done)),
            (0.0, *(float(count) for count in units)),
        )
        for what, end in phases.items()
    )
    return Chart(f"{name}: units through its pipeline", "ms", "units", series)


def _in(times: ChunkTimes) -> float:
    return times.copy_in[1] if times.copy_in else 0.0


def _computed(times: ChunkTimes) -> float:
    return times.compute[1]


def _out(times: ChunkTimes) -> float:
    return times.end


def _makespans(found: Sequence[Learnt], best: float) -> Chart:
    runs = tuple(float(number) for number in range(1, len(found) + 1))
    return Chart(
        "Makespan, run by run",
        "run",
        "ms",
        (
            Series("measured", runs, tuple(_ms(one.measured) for one in found)),
            Series("without noise", runs, tuple(_ms(one.really) for one in found)),
            Series("costs known", runs, (_ms(best),) * len(runs)),
        ),
    )


def _growth(machine: Machine, found: Sequence[Learnt]) -> Chart:
    """Shares of the devices with a link, and of all others together."""
    runs = tuple(float(number) for number in range(1, len(found) + 1))
    linked = [one.info.name for one in machine.devices if one.info.link][:FEW]
    shares = [{a.device: a.plan.share for a in one.plan.assignments} for one in found]
    series = [Series(name, runs, tuple(float(s.get(name, 0)) for s in shares)) for name in linked]
    rest = tuple(
        float(machine.load - sum(share.get(name, 0) for name in linked)) for share in shares
    )
    return Chart("Shares, run by run", "run", "units", (*series, Series("others", runs, rest)))


def _brief(words: Sequence[str]) -> str:
    shown = ", ".join(words[:FEW])
    return shown if len(words) <= FEW else f"{shown}, ..."


def _us(value: float) -> float:
    return 1e6 * value


def _ms(value: float) -> float:
    return 1e3 * value
