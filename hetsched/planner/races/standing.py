"""What races have shown so far, in words."""

from __future__ import annotations

from collections.abc import Sequence

from hetsched.models.evidence.races import RaceRecord
from hetsched.planner.races.decision import is_dropped
from hetsched.units import counted


def standing(record: RaceRecord, best: str, names: Sequence[str]) -> str:
    """Return how far the other variants are behind `best`; "" if none has raced against it."""
    behind = {name: c for name in names if name != best and (c := record.compare(name, best))}
    if not behind:
        return ""
    ordered = sorted(behind, key=lambda name: behind[name].mean)
    parts = [
        f"{name} takes {behind[name].ratio:.2f} times as long"
        + ("" if is_dropped(behind[name]) else " (undecided)")
        for name in ordered
    ]
    races = counted(max(comparison.races for comparison in behind.values()), "race")
    return f"{best} is the fastest in {races}: {', '.join(parts)}"
