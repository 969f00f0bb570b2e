"""The picture of a job's --plot: a Gantt chart, as the papers draw them.

Each device has a band with one row per kind of phase. In a row the plan is above, in pale colours,
and the measurement below. Boxes are chunks, labelled with their units where there is room.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hetsched.cli.plots.figure import COLOURS, FAINT, GRID, INK, style_axes, time_unit
from hetsched.explain.records import PHASES
from hetsched.units import counted, format_seconds

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from hetsched.device import Timeline
    from hetsched.explain import DeviceExplanation, Explanation

WIDTH = 11.0
"""Inches."""
DIGIT_WIDTH = 0.058
"""Width of a digit in a box, inches."""
MIN_EDGED_BOX = 0.02
"""Inches: narrower boxes have no edge."""
MIN_LABELLED_BOX = 0.1
"""Inches: lower boxes have no digits."""
MAX_LEGEND_COLUMNS = 6
TALL_ROW, SHORT_ROW = 0.42, 0.14
"""Inches; short where many devices of one kind have rows."""
MAX_TALL_DEVICES = 16
"""Up to this many devices of a kind have tall rows."""
GAP = 0.33
"""Space between two devices, as a fraction of a row."""
MEASURED_COLOUR = {"copy_in": COLOURS[0], "compute": COLOURS[2], "copy_out": COLOURS[3]}
PLANNED_COLOUR = {"copy_in": "#a3c1e0", "compute": "#b0dabb", "copy_out": "#e4cba5"}
WHOLE_CHUNK_COLOUR = "#cfd4da"
"""Colour of chunks that were predicted as a whole, copies included."""


@dataclass(frozen=True)
class GanttRow:
    """One row: its position and height, in inches from the top, and its two timelines."""

    label: str
    phase: str
    top: float
    height: float
    planned: Timeline | None
    measured: Timeline | None
    planned_colour: str


def rows_of(devices: Sequence[DeviceExplanation]) -> list[GanttRow]:
    """Lay out the rows of all devices, from the top."""
    rows: list[GanttRow] = []
    top = 0.0
    group_sizes = Counter(_group(device.device) for device in devices)
    for device in devices:
        is_tall = group_sizes[_group(device.device)] <= MAX_TALL_DEVICES
        height = TALL_ROW if is_tall else SHORT_ROW
        device_rows = _device_rows(device, top, height)
        rows += device_rows
        top += (len(device_rows) + GAP) * height
    return rows


def has_phase(timeline: Timeline | None, phase: str) -> bool:
    """Whether any chunk of `timeline` has such a phase."""
    return timeline is not None and any(getattr(chunk, phase) for chunk in timeline.chunks)


def _device_rows(device: DeviceExplanation, top: float, height: float) -> list[GanttRow]:
    phases = [
        (phase, name)
        for phase, name in PHASES
        if phase == "compute" or has_phase(device.plan, phase) or has_phase(device.timeline, phase)
    ]
    rows = []
    for index, (phase, name) in enumerate(phases):
        label = device.device if len(phases) == 1 else name
        if index == 0 and len(phases) > 1:
            label = f"{device.device}  {name}"
        colour = WHOLE_CHUNK_COLOUR if device.has_only_whole_chunks else PLANNED_COLOUR[phase]
        row_top = top + index * height
        rows.append(GanttRow(label, phase, row_top, height, device.plan, device.timeline, colour))
    return rows


def _group(device: str) -> str:
    return device.rstrip("0123456789")


def figure(explanation: Explanation) -> Figure:
    """Return the figure of `explanation`."""
    from matplotlib.figure import Figure

    rows = rows_of(explanation.devices)
    height = rows[-1].top + rows[-1].height if rows else TALL_ROW
    picture = Figure(figsize=(WIDTH, height + 1.5), layout="constrained")
    axes = picture.add_subplot()
    ends = [line.makespan for row in rows for line in (row.planned, row.measured) if line]
    ends += [v for v in (explanation.bound, explanation.predicted_seconds) if v]
    end = max(ends, default=1.0) * 1.02 or 1.0
    axes.set_xlim(0, end)
    axes.set_ylim(height, 0)
    for row in rows:
        _draw_row(axes, row, WIDTH * 0.85 / end)
    _draw_marks(axes, explanation, height)
    _finish_axes(axes, rows, *time_unit(end))
    axes.set_title(_title(explanation), fontsize=10, color=INK, loc="left", pad=28)
    _add_legend(picture, rows)
    return picture


def _draw_row(axes: Axes, row: GanttRow, per_second: float) -> None:
    """Draw both timelines of a row. `per_second`: inches of a second."""
    has_both = row.planned is not None and row.measured is not None
    middle = 0.5 if has_both else 0.06
    if row.planned is not None:
        bottom = 0.46 if has_both else 0.94
        _draw_boxes(axes, row, row.planned, (0.06, bottom), per_second, is_plan=True)
    if row.measured is not None:
        _draw_boxes(axes, row, row.measured, (middle, 0.94), per_second, is_plan=False)


def _draw_boxes(
    axes: Axes,
    row: GanttRow,
    timeline: Timeline,
    extent: tuple[float, float],
    per_second: float,
    is_plan: bool,
) -> None:
    """Draw the chunks of one timeline. `extent`: top and bottom, as fractions of the row."""
    phases = [(chunk.units, getattr(chunk, row.phase)) for chunk in timeline.chunks]
    boxes = [(units, span) for units, span in phases if span is not None]
    if not boxes:
        return
    top, height = row.top + extent[0] * row.height, (extent[1] - extent[0]) * row.height
    widths = sorted((b - a) * per_second for _, (a, b) in boxes)
    edge = 0.6 if widths[len(widths) // 2] > MIN_EDGED_BOX else 0.0
    axes.broken_barh(
        [(a, b - a) for _, (a, b) in boxes], (top, height),
        facecolor=row.planned_colour if is_plan else MEASURED_COLOUR[row.phase],
        edgecolor="white", linewidth=edge,
    )  # fmt: skip
    if height < MIN_LABELLED_BOX:
        return
    for units, (a, b) in boxes:
        if (b - a) * per_second > DIGIT_WIDTH * (len(str(units)) + 1):
            axes.text(
                (a + b) / 2, top + height / 2, str(units), fontsize=6.5, ha="center",
                va="center_baseline", color=INK if is_plan else "white", clip_on=True,
            )  # fmt: skip


def _draw_marks(axes: Axes, explanation: Explanation, inches: float) -> None:
    """Draw vertical lines at the bound and at the end, predicted or real; stack their labels."""
    marks = [(explanation.bound, "bound", INK, "-")]
    if explanation.seconds:
        label = "so far" if explanation.state == "running" else "end"
        marks.append((explanation.seconds, label, COLOURS[1], "--"))
    else:
        marks.append((explanation.predicted_seconds, "predicted", COLOURS[1], "--"))
    end = axes.get_xlim()[1]
    label_height = 0.0
    for seconds, label, colour, style in marks:
        if not seconds:
            continue
        axes.axvline(seconds, color=colour, linewidth=1.0, linestyle=style, zorder=3)
        axes.text(
            seconds, 1 + label_height / inches, f"{label} {format_seconds(seconds)}",
            fontsize=7.5, transform=axes.get_xaxis_transform(), color=colour, va="bottom",
            ha="right" if seconds > end / 2 else "left",
        )  # fmt: skip
        label_height += 0.13


def _finish_axes(axes: Axes, rows: Sequence[GanttRow], scale: float, unit: str) -> None:
    axes.set_yticks([row.top + row.height / 2 for row in rows], [row.label for row in rows])
    for row, label in zip(rows, axes.get_yticklabels(), strict=True):
        label.set_fontsize(8 if row.height == TALL_ROW else 6)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value * scale:g}")
    axes.set_xlabel(f"time ({unit})", fontsize=9, color=FAINT)
    axes.tick_params(axis="x", labelsize=8, colors=FAINT)
    axes.tick_params(axis="y", length=0, colors=INK)
    style_axes(axes, ("top", "right", "left"))
    axes.yaxis.grid(visible=False)
    axes.spines["bottom"].set_color(GRID)


def _title(explanation: Explanation) -> str:
    subject = "plan" if explanation.job is None else f"job {explanation.job}, {explanation.state}"
    return f"{explanation.workload}, {counted(explanation.load, 'unit')}: {subject}"


def _add_legend(picture: Figure, rows: Sequence[GanttRow]) -> None:
    from matplotlib.patches import Patch

    colours = _legend_colours(rows)
    if not colours:
        return
    handles = [Patch(facecolor=colour, label=label) for label, colour in colours.items()]
    picture.legend(
        handles=handles, loc="outside lower center", ncols=_legend_columns(len(handles)),
        frameon=False, fontsize=8,
    )  # fmt: skip


def _legend_colours(rows: Sequence[GanttRow]) -> dict[str, str]:
    """Return label -> colour of the kinds of boxes in use."""
    has_plan = any(row.planned is not None for row in rows)
    has_measurement = any(row.measured is not None for row in rows)
    colours: dict[str, str] = {}
    for phase, name in PHASES:
        for row in (row for row in rows if row.phase == phase):
            if has_phase(row.planned, phase):
                label = "whole chunks" if row.planned_colour == WHOLE_CHUNK_COLOUR else name
                colours[f"{label}, planned" if has_measurement else label] = row.planned_colour
            if has_phase(row.measured, phase):
                colours[f"{name}, measured" if has_plan else name] = MEASURED_COLOUR[phase]
    return colours


def _legend_columns(entries: int) -> int:
    """Return as many columns as fit, with rows of about the same length."""
    return math.ceil(entries / math.ceil(entries / MAX_LEGEND_COLUMNS))
