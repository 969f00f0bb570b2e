"""The tables of measured and predicted seconds, and of each device's use of time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from hetsched.explain.text.rows import Rows, device_rows, has_copies
from hetsched.text import columns, seconds_column
from hetsched.units import format_seconds

if TYPE_CHECKING:
    from hetsched.explain.records import (
        DeviceExplanation,
        Explanation,
        PhaseSeconds,
        TimeBreakdown,
    )

    Seconds = Callable[[DeviceExplanation], float | None]

PHASES = (("copy_in", "copy in"), ("compute", "compute"), ("copy_out", "copy out"))
BREAKDOWN = (
    ("computing", "computing"), ("copying", "only copying"), ("between", "between chunks"),
    ("before", "before the first"), ("idle", "after the last"),
)  # fmt: skip
"""Field, column."""


def seconds_table(explanation: Explanation, width: int | None) -> list[str]:
    """Return measured and predicted seconds, in total and of each phase."""
    rows = device_rows(explanation)
    devices = explanation.devices
    if not any(device.measured or device.predicted_seconds for device in devices):
        return []
    header = ["device", "total"]
    cells = [_pairs(rows, lambda d: d.seconds, lambda d: d.predicted_seconds)]
    for field, name in PHASES:
        measured = _phase_seconds(field, lambda device: device.measured)
        column = _pairs(rows, measured, _phase_seconds(field, lambda device: device.predicted))
        if any(cell != "-" for cell in column):
            header.append(name)
            cells.append(column)
    if has_copies(explanation):
        header.append("hidden")
        cells.append([_hidden(members) for _, members in rows])
    body = [[label, *row] for (label, _), row in zip(rows, zip(*cells, strict=True), strict=True)]
    lines = columns(header, body, left_columns=1)
    if width is not None and len(lines[0]) > width:
        body = [[cell.replace(" / ", "/") for cell in row] for row in body]
        lines = columns(header, body, left_columns=1, width=width)
    return [f"seconds{_sources(explanation)}:", *lines]


def _sources(explanation: Explanation) -> str:
    """Return the legend for the title: ", measured / predicted"."""
    sources = []
    if any(device.measured for device in explanation.devices):
        sources.append("measured")
    if any(device.predicted_seconds for device in explanation.devices):
        sources.append("predicted")
    return f", {' / '.join(sources)}"


def _phase_seconds(
    field: str, phases_of: Callable[[DeviceExplanation], PhaseSeconds | None]
) -> Seconds:
    def seconds(device: DeviceExplanation) -> float | None:
        phases = phases_of(device)
        value: float = 0.0 if phases is None else getattr(phases, field)
        return value or None

    return seconds


def _pairs(rows: Rows, measured: Seconds, predicted: Seconds) -> list[str]:
    """Format each row's maximum as "0.603 / 0.619"."""
    longest = [
        max((value for member in members if (value := of(member)) is not None), default=None)
        for of in (measured, predicted)
        for _, members in rows
    ]
    formatted = seconds_column(longest)
    first, second = formatted[: len(rows)], formatted[len(rows) :]
    if all(cell == "-" for cell in first) or all(cell == "-" for cell in second):
        return [b if a == "-" else a for a, b in zip(first, second, strict=True)]
    return ["-" if a == b == "-" else f"{a} / {b}" for a, b in zip(first, second, strict=True)]


def _hidden(members: Sequence[DeviceExplanation]) -> str:
    """Format mean fractions, measured and predicted."""
    columns_of_values = (
        [member.hidden for member in members],
        [member.predicted_hidden for member in members],
    )
    cells = [_mean_percent(values) for values in columns_of_values]
    present = [cell for cell in cells if cell != "-"]
    return " / ".join(present) or "-"


def _mean_percent(values: Sequence[float | None]) -> str:
    present = [value for value in values if value is not None]
    return f"{100 * sum(present) / len(present):.0f} %" if present else "-"


def breakdown_table(explanation: Explanation, width: int | None) -> list[str]:
    """Return each device's use of time as fractions of the job's time; each row sums to 1."""
    total = explanation.seconds
    if not total or not any(device.time_breakdown for device in explanation.devices):
        return []
    used = [pair for pair in BREAKDOWN if pair[0] != "copying" or has_copies(explanation)]
    rows = []
    for label, members in device_rows(explanation):
        parts = [member.time_breakdown for member in members if member.time_breakdown]
        if parts:
            means = [_mean(parts, field) / total for field, _ in used]
            rows.append([label, *(f"{mean * 100:.1f} %" for mean in means)])
    title = f"where the time went, of {format_seconds(total)}:"
    return [title, *columns(("device", *(name for _, name in used)), rows, width=width)]


def _mean(parts: Sequence[TimeBreakdown], field: str) -> float:
    total: float = sum(getattr(part, field) for part in parts)
    return total / len(parts)
