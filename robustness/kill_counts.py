"""What became of jobs during which device processes were killed, as figures and bars."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from benchmarks.results import Bar, Result

MIN_LOSSES = 0.2
"""Of kills, if a device with its own memory is the victim. Arbitrary: a job of unknown length
keeps no rows from the others in its first 50 iterations, of which 2 % are less than one."""


@dataclass
class Counts:
    """What became of the jobs of one solver; `repeated`: iterations in each.

    `losses`: kills after which the others had to go back to what was saved.
    """

    kills: int = 0
    losses: int = 0
    late: int = 0
    wrong: int = 0
    failed: list[str] = field(default_factory=list)
    repeated: list[float] = field(default_factory=list)
    excess: list[float] = field(default_factory=list)
    status: int | None = 0


def add_figures(
    result: Result, counts: Mapping[str, Counts], kills: int, *, has_losses: bool
) -> None:
    """Add a row for each solver, and the bars for `kills` in all; `has_losses`: those, too."""
    for solver, count in counts.items():
        cells = [count.kills, count.late, count.wrong, len(count.failed)]
        if has_losses:
            cells.insert(1, count.losses)
        most = max(count.repeated, default=0.0)
        result.rows.append((solver.removeprefix("Counted"), *map(str, cells), f"{most:.2f}"))
    result.data.append(
        {name: {"repeated": c.repeated, "failed": c.failed} for name, c in counts.items()}
    )
    _add_bars(result, kills, list(counts.values()))
    if has_losses:
        losses = sum(count.losses for count in counts.values())
        least = math.ceil(MIN_LOSSES * kills)
        result.bars.append(Bar("kills that lost rows of its memory", losses, least))


def _add_bars(result: Result, kills: int, counts: Sequence[Counts]) -> None:
    unclean = sum(count.status != 0 for count in counts)
    excess = max([0.0, *(value for count in counts for value in count.excess)])
    result.bars += [
        Bar("kills", sum(count.kills for count in counts), kills),
        Bar("wrong results", sum(count.wrong for count in counts), 0, at_least=False),
        Bar("jobs that failed", sum(len(count.failed) for count in counts), 0, at_least=False),
        Bar(
            "iterations repeated beyond one and 2 % of a job's",
            round(excess, 3),
            0,
            at_least=False,
        ),
        Bar("daemons that didn't stop in order", unclean, 0, at_least=False),
    ]
