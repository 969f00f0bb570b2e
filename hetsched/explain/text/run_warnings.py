"""Warnings about a run: late finishes, waits, wrong predictions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hetsched.units import counted, format_seconds

if TYPE_CHECKING:
    from hetsched.explain.records import DeviceExplanation, Explanation

MIN_LOST_FRACTION = 0.05
"""Fraction of the time; less is normal. Arbitrary."""
MIN_SPLIT_GAIN = 0.01
"""Minimum fraction of the time that a better split must save to be reported. Arbitrary."""
MIN_PREDICTION_ERROR = 0.10
"""Relative error of a prediction; below it a plan is reused."""


def run_warnings(explanation: Explanation) -> list[str]:
    """Return one line per problem; none for a plan."""
    busy = [d for d in explanation.devices if d.timeline is not None and d.seconds]
    total = explanation.seconds
    if not busy or not total:
        return []
    lines = [
        _unequal_ends(busy, total),
        *_moved_units(explanation),
        *(_prediction_error_line(device) for device in _worst_predicted(busy)),
        *(_lost_time(field, busy, total) for field in ("copying", "between", "before")),
    ]
    late = sum(device.late for device in explanation.devices)
    if late:
        phases = counted(late, "phase")
        lines.append(f"{phases} took longer than modelled: the times are not valid")
    return [line for line in lines if line]


def _lost_time(field: str, busy: list[DeviceExplanation], total: float) -> str:
    """Return the device that lost the most time in one way; empty if that is little."""
    worst = max(busy, key=lambda device: getattr(device.time_breakdown, field, 0.0))
    fraction = getattr(worst.time_breakdown, field, 0.0) / total
    if fraction < MIN_LOST_FRACTION:
        return ""
    copies = worst.measured is not None and worst.measured.copies > 0
    loss = {
        "copying": "waited for its copies",
        "between": "neither computed nor copied" if copies else "was idle between its chunks",
        "before": "had not started",
    }[field]
    return f"{worst.device} {loss} for {100 * fraction:.0f} % of the time"


def _unequal_ends(busy: list[DeviceExplanation], total: float) -> str:
    """Return how far apart the devices finished; empty if no other split would have helped."""
    ends = {d.device: d.timeline.makespan for d in busy if d.timeline is not None}
    first, last = min(ends, key=lambda name: ends[name]), max(ends, key=lambda name: ends[name])
    if ends[last] < (1 + MIN_LOST_FRACTION) * ends[first]:
        return ""
    balanced = _balanced_seconds(busy)
    if balanced > (1 - MIN_SPLIT_GAIN) * total:
        return ""
    return (
        f"{last} finished {100 * (ends[last] / ends[first] - 1):.0f} % later than {first};"
        f" at these speeds the best split takes {format_seconds(balanced)},"
        f" {100 * (1 - balanced / total):.0f} % less"
    )


def _balanced_seconds(busy: list[DeviceExplanation]) -> float:
    """Return the seconds of the best split of the same whole units at the measured speeds."""
    paces = [device.seconds / device.share for device in busy if device.seconds and device.share]
    load = sum(device.share for device in busy)
    fluid = load / sum(1 / pace for pace in paces)
    shares = [int(fluid / pace) for pace in paces]
    for _ in range(load - sum(shares)):
        ends = [(share + 1) * pace for share, pace in zip(shares, paces, strict=True)]
        shares[ends.index(min(ends))] += 1
    return max(share * pace for share, pace in zip(shares, paces, strict=True))


def _moved_units(explanation: Explanation) -> list[str]:
    """Return the units that ran on a different device than planned."""
    if explanation.state != "done":
        return []
    return [
        f"{device.device} ran {counted(device.moved_units, 'unit')} assigned to other devices"
        for device in explanation.devices
        if device.moved_units > 0
    ]


def _worst_predicted(busy: list[DeviceExplanation]) -> list[DeviceExplanation]:
    """Return the device with the largest error in each group (names that differ by a number)."""
    worst: dict[str, DeviceExplanation] = {}
    for device in busy:
        group = device.device.rstrip("0123456789")
        current = worst.get(group)
        if current is None or abs(_prediction_error(device)) > abs(_prediction_error(current)):
            worst[group] = device
    return list(worst.values())


def _prediction_error(device: DeviceExplanation) -> float:
    """Return the relative error; 0 if the share changed during the run.

    Of a device that took units of a tail: per unit.
    """
    if not device.predicted_seconds or not device.seconds or device.moved_units:
        return 0.0
    return device.seconds / device.share / (device.predicted_seconds / device.planned) - 1


def _prediction_error_line(device: DeviceExplanation) -> str:
    error = _prediction_error(device)
    if abs(error) < MIN_PREDICTION_ERROR:
        return ""
    runs = "" if device.runs is None else f" by a model of {counted(device.runs, 'run')}"
    more = "longer" if error > 0 else "less"
    return f"{device.device} took {100 * abs(error):.0f} % {more} than predicted{runs}"
