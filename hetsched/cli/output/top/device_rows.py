"""The devices of the screen: a row each, and one for a link. Many cores share a row. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hetsched.text import MAX_GROUP_ROWS, clean, grouped_rows, number
from hetsched.transport.messages import DaemonOverview, DeviceActivity
from hetsched.units import counted, format_bytes

BAR = 10
HEADER = ("device", "job", "variant", "", "done/share", "units/s", "predicted", "ratio")
LEFT_COLUMNS = 4


@dataclass(frozen=True)
class DeviceRow:
    """The cells of one row, or (instead) a line about the row above."""

    cells: tuple[str, ...] = ()
    line: str = ""


def device_rows(overview: DaemonOverview, max_rows: int) -> list[DeviceRow]:
    """Return at most `max_rows` rows; if there are too many, cores share one."""
    rows = _rows(overview, MAX_GROUP_ROWS)
    if len(rows) > max_rows:
        rows = _rows(overview, 1)
    if len(rows) > max_rows:
        kept = max(0, max_rows - 1)
        rows = [*rows[:kept], DeviceRow(line=f"  {len(rows) - kept} more rows")]
    return rows[:max_rows]


def bar(done: float, total: float) -> str:
    filled = min(BAR, int(BAR * done / total)) if total > 0 else 0
    return f"[{'#' * filled}{'-' * (BAR - filled)}]"


def _rows(overview: DaemonOverview, limit: int) -> list[DeviceRow]:
    """Return a row for each activity, then for idle devices, then for missing ones."""
    by_job: dict[int, list[DeviceActivity]] = {}
    for activity in overview.activities:
        by_job.setdefault(activity.job, []).append(activity)
    rows: list[DeviceRow] = []
    for members in by_job.values():
        for label, group in grouped_rows(members, lambda activity: activity.device, limit):
            rows += _activity_rows(label, group)
    devices = overview.devices
    busy = {activity.device for activity in overview.activities}
    idle = [
        info
        for info in devices.devices
        if info.name not in busy and info.name not in devices.absent and not info.members
    ]
    for label, _ in grouped_rows(idle, lambda info: info.name, limit):
        rows.append(DeviceRow((clean(label), "-", "idle", *[""] * 5)))
    for name, reason in {**devices.restricted, **devices.absent}.items():
        rows.append(DeviceRow(line=clean(f"{name}: {reason}")))
    return rows


def _activity_rows(label: str, group: Sequence[DeviceActivity]) -> list[DeviceRow]:
    first = group[0]
    done, share = sum(a.done for a in group), sum(a.share for a in group)
    speed = _sum([a.speed for a in group])
    predicted = _sum([a.predicted_speed for a in group])
    is_iterative = first.is_iterative
    ratio = f"{speed / predicted:.0%}" if speed is not None and predicted else "-"
    variants = sorted({a.variant for a in group})
    cells = (
        clean(label),
        str(first.job),
        clean("+".join(variants)),
        bar(first.compute_busy, 1) if is_iterative else bar(done, share),
        counted(share, "row") if is_iterative else f"{done}/{share}",
        number(speed),
        number(predicted),
        ratio,
    )
    rows = [DeviceRow(cells)]
    if len(group) == 1 and (first.h2d_busy or first.d2h_busy or first.h2d_rate):
        rows.append(DeviceRow(line=_link(first)))
    return rows


def _link(activity: DeviceActivity) -> str:
    return (
        f"  link: h2d {_rate(activity.h2d_rate)} {activity.h2d_busy:.0%} busy,"
        f" computing {activity.compute_busy:.0%},"
        f" d2h {_rate(activity.d2h_rate)} {activity.d2h_busy:.0%} busy"
    )


def _rate(rate: float | None) -> str:
    return "" if rate is None else f"{format_bytes(rate)}/s"


def _sum(values: Sequence[float | None]) -> float | None:
    """Return the sum, None if a value is unknown."""
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None
