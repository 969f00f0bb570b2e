"""The races of variants: who raced, which is the fastest, and how far the others are behind."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from hetsched.cli.output.model_labels import work_label
from hetsched.units import counted

if TYPE_CHECKING:
    from hetsched.store.model_records import StoredRaces


class RivalRecord(msgspec.Struct, frozen=True):
    """A variant behind the fastest, as JSON.

    `ratio`: its time relative to the fastest's, `low` and `high` the interval of 90 %; None if
    there is only one chunk of each.
    """

    variant: str
    ratio: float
    low: float | None
    high: float | None
    races: int
    dropped: bool


class RaceSummary(msgspec.Struct, frozen=True):
    """The races of one job on one kind of core, at shares like the latest; as JSON."""

    speed_key: str
    device: str
    storage: str
    units: float
    fastest: str
    rivals: list[RivalRecord]


def race_summary(stored: StoredRaces) -> RaceSummary | None:
    """Return what the races show; None if there is nothing to compare."""
    from hetsched.planner.trials import is_open

    everything = stored.record()
    if not everything.races:
        return None
    units = everything.races[-1].units
    record = everything.similar(units)
    names = sorted(record.variants())
    fastest = record.fastest(names)
    if fastest is None:
        return None
    behind = {
        name: c for name in names if name != fastest and (c := record.compare(name, fastest))
    }
    rivals = [
        RivalRecord(
            name,
            behind[name].ratio,
            math.exp(behind[name].low) if math.isfinite(behind[name].low) else None,
            math.exp(behind[name].high) if math.isfinite(behind[name].high) else None,
            behind[name].races,
            not is_open(behind[name]),
        )
        for name in sorted(behind, key=lambda name: behind[name].mean)
    ]
    return RaceSummary(stored.speed_key, stored.device, stored.storage, units, fastest, rivals)


def race_lines(all_races: Iterable[StoredRaces]) -> list[str]:
    """Return a title for each kind of core, and a line for each variant that raced."""
    lines = []
    for stored in all_races:
        summary = race_summary(stored)
        if summary is None:
            continue
        share = counted(round(summary.units), "unit")
        lines.append(f"{stored.workload} {work_label(stored.speed_key)}")
        lines.append(
            f"{stored.device}, {stored.storage}: races of variants at about {share} a core"
        )
        lines.append(f"  {summary.fastest}: the fastest")
        lines += [f"  {_rival(rival)}" for rival in summary.rivals]
        lines.append("")
    return lines


def _rival(rival: RivalRecord) -> str:
    interval = ""
    if rival.low is not None and rival.high is not None:
        interval = f" ({rival.low:.2f} to {rival.high:.2f})"
    state = "dropped" if rival.dropped else "undecided"
    races = counted(rival.races, "race")
    return f"{rival.variant}: {rival.ratio:.2f}{interval} times as long in {races}, {state}"
