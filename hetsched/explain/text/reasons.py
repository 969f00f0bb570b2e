"""The reasons for the split and for the chunks."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from hetsched.explain.text.wording import device_names
from hetsched.text import MAX_GROUP_ROWS
from hetsched.units import counted, format_seconds

if TYPE_CHECKING:
    from hetsched.explain.records import DeviceExplanation, Explanation

MIN_CORRECTION = 0.01
"""Relative difference of prediction and plan's phases; smaller ones aren't shown. Arbitrary."""

_SHARE = re.compile(r"(\S+?)(\d*): (\d+ units?|no share,) (.*)")
"""Group, number, share and reason of one device."""


def reason_lines(explanation: Explanation) -> list[str]:
    """Return why each device has its share, and why the share is cut into its chunks."""
    lines = [*_condensed(explanation.reasons), *_corrections(explanation)]
    lines += [f"note: {note}" for note in explanation.notes]
    split = ["why this split:", *(f"  {line}" for line in lines)] if lines else []
    devices: dict[str, list[str]] = {}
    for device in explanation.devices:
        reasons = device.chunk_reason, device.call_reason, _library_calls(device)
        for reason in filter(None, reasons):
            devices.setdefault(reason, []).append(device.device)
    chunks = [f"  {device_names(names)}: {reason}" for reason, names in devices.items()]
    return [*split, "why these chunks:", *chunks] if chunks else split


def _library_calls(device: DeviceExplanation) -> str:
    """Return how many units its kernel passes to the library at once; "" if it doesn't say."""
    if not device.units_per_call:
        return ""
    return f"calls of the library compute at most {counted(device.units_per_call, 'unit')} each"


def _corrections(explanation: Explanation) -> Iterable[str]:
    """Yield the devices whose prediction differs from the time of their plan's phases."""
    for device in explanation.devices[:MAX_GROUP_ROWS]:
        planned = device.plan.makespan if device.plan is not None and device.mode else 0.0
        if not planned or not device.predicted_seconds:
            continue
        ratio = device.predicted_seconds / planned
        if abs(ratio - 1) >= MIN_CORRECTION:
            predicted = format_seconds(device.predicted_seconds)
            yield (
                f"{device.device}: predicted to take {predicted}, {ratio:.2f} times the"
                f" {format_seconds(planned)} of its phases, like its latest shares"
            )


def _condensed(reasons: Iterable[str]) -> list[str]:
    """Merge the lines of devices of one kind with the same reason."""
    groups: dict[tuple[str, str], list[tuple[str, int, str]]] = {}
    for reason in reasons:
        match = _SHARE.fullmatch(reason)
        if match is None:
            groups[reason, ""] = [("", 0, reason)]
            continue
        units = match[3].split()[0]
        member = match[1] + match[2], int(units) if units.isdigit() else 0, reason
        groups.setdefault((match[1], match[4]), []).append(member)
    lines = []
    for (_, cause), members in groups.items():
        if len(members) <= MAX_GROUP_ROWS:
            lines += [reason for _, _, reason in members]
        else:
            lines.append(_group_line(members, cause))
    return lines


def _group_line(members: list[tuple[str, int, str]], cause: str) -> str:
    lowest, highest = min(m[1] for m in members), max(m[1] for m in members)
    units = str(lowest) if lowest == highest else f"{lowest} to {highest}"
    share = f"{units} units each" if highest else "no share,"
    return f"{members[0][0]} to {members[-1][0]}: {share} {cause}"
