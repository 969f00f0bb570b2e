"""The closing table of a job, and the lines below it. Pure: records in, lines out."""

from __future__ import annotations

from collections.abc import Sequence

from hetsched.cli.output.terminal import columns, number, seconds_column
from hetsched.job import DeviceReport, JobReport
from hetsched.text import MAX_CORES, together
from hetsched.units import counted, format_seconds


def table(report: JobReport) -> list[str]:
    """device, variant, share, seconds, units/s, predicted: one line a row."""
    rows = together(report.devices, lambda one: one.device, MAX_CORES)
    times = seconds_column([_longest(members) for _, members in rows])
    predicted = seconds_column([_predicted(members) for _, members in rows])
    return columns(
        ("device", "variant", "share", "seconds", "units/s", "predicted"),
        [
            (label, _variants(members), str(_share(members)), seconds, _speed(members), guess)
            for (label, members), seconds, guess in zip(rows, times, predicted, strict=True)
        ],
        left=2,
    )


def summary(report: JobReport, reasons: bool = False) -> list[str]:
    """What the table can't say: the whole job's time, how it was checked, what to mistrust.

    `reasons`: also why each device got its share.
    """
    lines = [_headline(report)]
    if report.verified is not None:
        worst = "" if report.max_error is None else f", max error {report.max_error:.2g}"
        lines.append(f"verified: every unit is right{worst}" if report.verified else _wrong(worst))
    late = {device.device: device.late for device in report.devices if device.late}
    if late:
        which = ", ".join(f"{counted(n, 'phase')} on {name}" for name, n in late.items())
        lines.append(f"late: {which} outlasted the modelled time; don't trust the figures")
    lines += [f"note: {text}" for text in report.notes if reasons or not _reason(report, text)]
    lines += [f"result: {_named(name)}{path}" for name, path in report.outputs.items()]
    return lines


def _headline(report: JobReport) -> str:
    parts = [f"{report.workload}: {counted(report.load, 'unit')}"]
    if report.seconds is not None:
        parts.append(f"in {format_seconds(report.seconds)}{_against(report)}")
    if report.spread is not None and len(report.devices) > 1:
        parts.append(f"spread {report.spread:.3f}")
    return "  ".join(parts)


def _against(report: JobReport) -> str:
    if not report.predicted_seconds or report.seconds is None:
        return " (no prediction: first of its kind here)"
    error = 100 * (report.seconds / report.predicted_seconds - 1)
    return f" (predicted {format_seconds(report.predicted_seconds)}, {error:+.1f} %)"


def _wrong(worst: str) -> str:
    return f"verified: WRONG{worst}"


def _reason(report: JobReport, text: str) -> bool:
    """Whether a note is about one device's share: "cpu0: 16 units ...", "team0: no share, ..."."""
    if ": no share, " in text:
        return True
    return any(text.startswith(f"{device.device}: ") for device in report.devices)


def _named(name: str) -> str:
    return f"{name} in " if name else ""


def _share(members: Sequence[DeviceReport]) -> int:
    return sum(member.share for member in members)


def _longest(members: Sequence[DeviceReport]) -> float | None:
    busy = [member.seconds for member in members if member.share]
    return max(busy) if busy else None


def _predicted(members: Sequence[DeviceReport]) -> float | None:
    known = [m.predicted_seconds for m in members if m.share and m.predicted_seconds is not None]
    return max(known) if known else None


def _speed(members: Sequence[DeviceReport]) -> str:
    return number(sum(m.share / m.seconds for m in members if m.share and m.seconds > 0) or None)


def _variants(members: Sequence[DeviceReport]) -> str:
    return ", ".join(dict.fromkeys(m.variant for m in members if m.share)) or "-"
