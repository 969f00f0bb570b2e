"""Rows of a Gantt chart: one for each device and kind of phase. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hetsched.cli.output.plots.style import COLOURS
from hetsched.explain.trace import PHASES

if TYPE_CHECKING:
    from hetsched.device import Timeline
    from hetsched.explain import DeviceExplanation

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
