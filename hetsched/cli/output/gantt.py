"""The picture of --plot: a Gantt chart, as the papers draw them. matplotlib is the extra `plot`.

A band for each device with a row for each kind of phase; in a row what was planned lies above,
pale, and what was measured below. Boxes are chunks, with their units where these fit.
"""

from __future__ import annotations

import io
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hetsched.cli.commands.models.picture import COLOURS, FAINT, GRID, INK
from hetsched.cli.output.charts import check
from hetsched.explain.trace import PHASES
from hetsched.units import counted, format_seconds

if TYPE_CHECKING:
    from hetsched.device import Timeline
    from hetsched.explain import Account, DeviceAccount

WIDTH = 11.0
"""Inches."""
TALL, SHORT = 0.42, 0.14
"""Inches of a row; of one of very many devices of a kind."""
ROOMY = 16
"""Devices of a kind up to which each has a tall row."""
GAP = 0.33
"""Between two devices, as a part of a row."""
LETTER = 0.058
"""Inches of a digit in a box."""
EDGE = 0.02
"""Inches of a box that is worth an edge."""
ABREAST = 6
"""Entries of the legend in a row."""
COLOUR = {"copy_in": COLOURS[0], "compute": COLOURS[2], "copy_out": COLOURS[3]}
PALE = {"copy_in": "#a3c1e0", "compute": "#b0dabb", "copy_out": "#e4cba5"}
WHOLE = "#cfd4da"
"""Of chunks that were planned as a whole, copies and all."""


@dataclass(frozen=True)
class Row:
    """One row: where it is, in inches from the top, and its two halves."""

    label: str
    field: str
    top: float
    height: float
    planned: Timeline | None
    measured: Timeline | None
    pale: str


def draw(account: Account, file: str, force: bool) -> None:
    """Draw `account` into `file`.

    Raises
    ------
    UsageError, Unavailable, CantCreate, IOFailure
    """
    check(file, force)
    from hetsched.store.array_files import write_whole

    raw = io.BytesIO()
    kind = Path(file).suffix.lower().lstrip(".")
    figure(account).savefig(raw, format=kind, dpi=150)
    write_whole(file, raw.getvalue(), force)


def figure(account: Account) -> Any:
    """The matplotlib Figure of `account`."""
    from matplotlib.figure import Figure

    rows = _rows(account.devices)
    height = rows[-1].top + rows[-1].height if rows else TALL
    picture = Figure(figsize=(WIDTH, height + 1.5), layout="constrained")
    axes = picture.add_subplot()
    ends = [line.makespan for row in rows for line in (row.planned, row.measured) if line]
    ends += [v for v in (account.whole_unit_bound, account.predicted_seconds) if v]
    end = max(ends, default=1.0) * 1.02 or 1.0
    axes.set_xlim(0, end)
    axes.set_ylim(height, 0)
    for row in rows:
        _draw_row(axes, row, WIDTH * 0.85 / end)
    _marks(axes, account, height)
    _dress(axes, rows, *_unit(end))
    axes.set_title(_title(account), fontsize=10, color=INK, loc="left", pad=28)
    _legend(picture, rows)
    return picture


def _rows(devices: Sequence[DeviceAccount]) -> list[Row]:
    rows: list[Row] = []
    top = 0.0
    kinds = Counter(_stem(one.device) for one in devices)
    for one in devices:
        tall = kinds[_stem(one.device)] <= ROOMY
        height = TALL if tall else SHORT
        there = [
            (field, name)
            for field, name in PHASES
            if field == "compute" or _there(one.plan, field) or _there(one.timeline, field)
        ]
        for number, (field, name) in enumerate(there):
            label = one.device if len(there) == 1 else name
            if number == 0 and len(there) > 1:
                label = f"{one.device}  {name}"
            pale = WHOLE if one.lumped else PALE[field]
            rows.append(Row(label, field, top, height, one.plan, one.timeline, pale))
            top += height
        top += GAP * height
    return rows


def _stem(device: str) -> str:
    return device.rstrip("0123456789")


def _draw_row(axes: Any, row: Row, per_second: float) -> None:
    """`per_second`: inches of a second."""
    both = row.planned is not None and row.measured is not None
    middle = 0.5 if both else 0.06
    if row.planned is not None:
        bottom = 0.46 if both else 0.94
        _boxes(axes, row, row.planned, (0.06, bottom), per_second, pale=True)
    if row.measured is not None:
        _boxes(axes, row, row.measured, (middle, 0.94), per_second, pale=False)


def _boxes(
    axes: Any, row: Row, line: Timeline, part: tuple[float, float], per_second: float, pale: bool
) -> None:
    found = [(chunk.units, getattr(chunk, row.field)) for chunk in line.chunks]
    boxes = [(units, span) for units, span in found if span is not None]
    if not boxes:
        return
    top, height = row.top + part[0] * row.height, (part[1] - part[0]) * row.height
    widths = sorted((b - a) * per_second for _, (a, b) in boxes)
    edge = 0.6 if widths[len(widths) // 2] > EDGE else 0.0
    axes.broken_barh(
        [(a, b - a) for _, (a, b) in boxes], (top, height),
        facecolor=row.pale if pale else COLOUR[row.field],
        edgecolor="white", linewidth=edge,
    )  # fmt: skip
    if height < 0.1:  # too low for digits
        return
    for units, (a, b) in boxes:
        if (b - a) * per_second > LETTER * (len(str(units)) + 1):
            axes.text(
                (a + b) / 2, top + height / 2, str(units), fontsize=6.5, ha="center",
                va="center_baseline", color=INK if pale else "white", clip_on=True,
            )  # fmt: skip


def _marks(axes: Any, account: Account, inches: float) -> None:
    """Vertical lines: the bound, and when it was to be over, or was; one label above the other."""
    marks = [(account.whole_unit_bound, "bound", INK, "-")]
    if account.seconds:
        word = "so far" if account.state == "running" else "end"
        marks.append((account.seconds, word, COLOURS[1], "--"))
    else:
        marks.append((account.predicted_seconds, "predicted", COLOURS[1], "--"))
    end = axes.get_xlim()[1]
    line = 0.0
    for seconds, word, colour, style in marks:
        if not seconds:
            continue
        axes.axvline(seconds, color=colour, linewidth=1.0, linestyle=style, zorder=3)
        axes.text(
            seconds, 1 + line / inches, f"{word} {format_seconds(seconds)}", fontsize=7.5,
            transform=axes.get_xaxis_transform(), color=colour, va="bottom",
            ha="right" if seconds > end / 2 else "left",
        )  # fmt: skip
        line += 0.13


def _dress(axes: Any, rows: Sequence[Row], scale: float, word: str) -> None:
    axes.set_yticks([row.top + row.height / 2 for row in rows], [row.label for row in rows])
    for row, label in zip(rows, axes.get_yticklabels(), strict=True):
        label.set_fontsize(8 if row.height == TALL else 6)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value * scale:g}")
    axes.set_xlabel(f"time ({word})", fontsize=9, color=FAINT)
    axes.tick_params(axis="x", labelsize=8, colors=FAINT)
    axes.tick_params(axis="y", length=0, colors=INK)
    axes.grid(axis="x", color=GRID, linewidth=0.7)
    axes.set_axisbelow(True)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(GRID)


def _unit(end: float) -> tuple[float, str]:
    """Factor and name of the unit of the axis of time."""
    if end >= 1.0:
        return 1.0, "s"
    return (1e3, "ms") if end >= 1e-3 else (1e6, "us")


def _title(account: Account) -> str:
    what = "plan" if account.job is None else f"job {account.job}, {account.state}"
    return f"{account.workload}, {counted(account.load, 'unit')}: {what}"


def _legend(picture: Any, rows: Sequence[Row]) -> None:
    from matplotlib.patches import Patch

    planned = any(row.planned is not None for row in rows)
    measured = any(row.measured is not None for row in rows)
    found: dict[str, str] = {}
    for field, name in PHASES:
        for row in (row for row in rows if row.field == field):
            if _there(row.planned, field):
                word = "whole chunks" if row.pale == WHOLE else name
                found[f"{word}, planned" if measured else word] = row.pale
            if _there(row.measured, field):
                found[f"{name}, measured" if planned else name] = COLOUR[field]
    if found:
        handles = [Patch(facecolor=colour, label=label) for label, colour in found.items()]
        picture.legend(
            handles=handles, loc="outside lower center", ncols=_columns(len(handles)),
            frameon=False, fontsize=8,
        )  # fmt: skip


def _columns(entries: int) -> int:
    """So many as fit beside each other, in rows of about the same length."""
    return math.ceil(entries / math.ceil(entries / ABREAST))


def _there(line: Timeline | None, field: str) -> bool:
    return line is not None and any(getattr(chunk, field) for chunk in line.chunks)
