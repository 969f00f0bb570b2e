"""Rows of the tables: one per device, or one for many devices of one kind."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hetsched.text import MAX_GROUP_ROWS, grouped_rows

if TYPE_CHECKING:
    from hetsched.explain.records import DeviceExplanation, Explanation

Rows = list[tuple[str, list["DeviceExplanation"]]]


def device_rows(explanation: Explanation) -> Rows:
    """Return (label, devices) of each row."""
    return grouped_rows(explanation.devices, lambda device: device.device, MAX_GROUP_ROWS)


def has_copies(explanation: Explanation) -> bool:
    """Return whether any device copies, measured or predicted."""
    phases = [p for device in explanation.devices for p in (device.measured, device.predicted)]
    return any(p is not None and p.copies > 0 for p in phases)
