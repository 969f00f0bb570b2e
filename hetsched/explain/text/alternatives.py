"""Predicted times of other splits, other plans and other machines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hetsched.explain.text.wording import signed_percent
from hetsched.units import counted, format_seconds

if TYPE_CHECKING:
    from hetsched.explain.records import Alternative, DeviceExplanation, Explanation

MIN_SAVING = 0.01
"""Fraction of the time; smaller savings don't count. Arbitrary."""


ROUNDING = 0.001
"""Relative difference of two predictions that says nothing. Arbitrary."""


def alternative_lines(explanation: Explanation) -> list[str]:
    """Return the predicted times of other splits, and of other plans of each device."""
    lines = []
    if explanation.alternatives and explanation.predicted_seconds:
        lines += _rows(explanation.alternatives, explanation.predicted_seconds, "  ")
        lines += _below_bound(explanation)
    for device in explanation.devices:
        # Not the time of the plan's phases: alternatives are corrected by measured shares too.
        predicted = device.predicted_seconds
        if predicted and device.alternatives:
            lines.append(_device_line(device, predicted))
            lines += _rows(device.alternatives, predicted, "    ")
    return ["alternatives (predicted):", *lines] if lines else []


def _below_bound(explanation: Explanation) -> list[str]:
    """Return why alternatives may take less than the lower bound of any split."""
    bound = explanation.whole_unit_bound
    if bound is None or all(a.seconds >= (1 - ROUNDING) * bound for a in explanation.alternatives):
        return []
    return ["  devices slow each other down: the lower bound holds when all of them compute"]


def _device_line(device: DeviceExplanation, predicted: float) -> str:
    bound = "" if device.bound is None else f", lower bound {format_seconds(device.bound)}"
    units = counted(device.planned, "unit")
    return f"  {device.device}, {units} in {format_seconds(predicted)} as planned{bound}:"


def _rows(alternatives: Sequence[Alternative], planned: float, indent: str) -> list[str]:
    rows = [
        (
            alternative.description,
            format_seconds(alternative.seconds),
            signed_percent(alternative.seconds / planned - 1),
        )
        for alternative in alternatives
    ]
    widths = [max(len(row[i]) for row in rows) for i in range(3)]
    return [
        f"{indent}{a.ljust(widths[0])}  {b.rjust(widths[1])}  {c.rjust(widths[2])}"
        for a, b, c in rows
    ]


def what_if_lines(explanation: Explanation) -> list[str]:
    """Return the changes of the machine that would save time, best first."""
    changes = sorted(explanation.what_if, key=lambda change: -change.saves)
    lines = [
        f"{change.change}: {format_seconds(change.seconds)}, {100 * change.saves:.0f} % less"
        for change in changes
        if change.saves >= MIN_SAVING
    ]
    useless = [change.change for change in explanation.what_if if change.saves < MIN_SAVING]
    if useless:
        lines.append(f"would save less than 1 %: {', '.join(useless)}")
    return ["what would help:", *(f"  {line}" for line in lines)] if lines else []
