"""The closing table of a job, and the lines below it. Pure: records in, lines out."""

from __future__ import annotations

from collections.abc import Sequence

from hetsched.cli.output.iteration_rows import iteration_headline, iteration_table
from hetsched.cli.output.terminal import columns, number, seconds_column
from hetsched.job import DeviceReport, JobReport
from hetsched.text import MAX_GROUP_ROWS, grouped_rows
from hetsched.units import counted, format_seconds


def table(report: JobReport) -> list[str]:
    """Return the table of devices: variant, share, seconds, units/s, predicted seconds.

    Of an iterative job: variant, rows, seconds of each phase.
    """
    if report.iterations is not None:
        return iteration_table(report)
    rows = grouped_rows(report.devices, lambda device: device.device, MAX_GROUP_ROWS)
    times = seconds_column([_slowest(members) for _, members in rows])
    predictions = seconds_column([_predicted(members) for _, members in rows])
    return columns(
        ("device", "variant", "share", "seconds", "units/s", "predicted"),
        [
            (label, _variants(members), str(_share(members)), seconds, _speed(members), predicted)
            for (label, members), seconds, predicted in zip(rows, times, predictions, strict=True)
        ],
        left_columns=2,
    )


def summary(report: JobReport, with_reasons: bool = False) -> list[str]:
    """Return the lines below the table: total time, verification, warnings, result files.

    `with_reasons`: also why each device got its share.
    """
    lines = [_headline(report)]
    if report.verified is not None:
        error = "" if report.max_error is None else f", max error {report.max_error:.2g}"
        outcome = "all units correct" if report.verified else "WRONG"
        lines.append(f"verified: {outcome}{error}")
    late = {device.device: device.late for device in report.devices if device.late}
    if late:
        lines.append(late_warning(late))
    lines += [
        f"note: {text}" for text in report.notes if with_reasons or not _is_reason(report, text)
    ]
    lines += [
        f"result: {name}{' in ' if name else ''}{path}" for name, path in report.outputs.items()
    ]
    return lines


def late_warning(late: dict[str, int]) -> str:
    """Return the warning about emulated devices that were too slow: name -> phases."""
    where = ", ".join(f"{counted(phases, 'phase')} on {name}" for name, phases in late.items())
    return f"late: {where} took longer than modelled; the times aren't valid"


def _headline(report: JobReport) -> str:
    if report.iterations is not None:
        return iteration_headline(report)
    parts = [f"{report.workload}: {counted(report.load, 'unit')}"]
    if report.seconds is not None:
        parts.append(f"kernels' time {format_seconds(report.seconds)}{_prediction(report)}")
    if report.spread is not None and len(report.devices) > 1:
        parts.append(f"spread {report.spread:.3f}")
    if report.whole_seconds is not None:
        parts.append(f"whole time {format_seconds(report.whole_seconds)}")
    return "  ".join(parts)


def _prediction(report: JobReport) -> str:
    if not report.predicted_seconds or report.seconds is None:
        return f" (no prediction: {_why_unpredicted(report)})"
    error = 100 * (report.seconds / report.predicted_seconds - 1)
    return f" (predicted {format_seconds(report.predicted_seconds)}, {error:+.1f} %)"


def _why_unpredicted(report: JobReport) -> str:
    active = [device for device in report.devices if device.share]
    unmeasured = [device for device in active if device.predicted_seconds is None]
    if not unmeasured or len(unmeasured) == len(active):
        return "first run of this kind"
    variant = unmeasured[0].variant
    names = [device.device for device in unmeasured if device.variant == variant]
    labels = ", ".join(label for label, _ in grouped_rows(names, str, MAX_GROUP_ROWS))
    return f"no measurements for {variant} on {labels}"


def _is_reason(report: JobReport, text: str) -> bool:
    """Whether a note is about one device's share: "cpu0: 16 units ...", "team0: no share, ..."."""
    if ": no share, " in text:
        return True
    return any(text.startswith(f"{device.device}: ") for device in report.devices)


def _share(members: Sequence[DeviceReport]) -> int:
    return sum(member.share for member in members)


def _slowest(members: Sequence[DeviceReport]) -> float | None:
    return max((member.seconds for member in members if member.share), default=None)


def _predicted(members: Sequence[DeviceReport]) -> float | None:
    seconds = [m.predicted_seconds for m in members if m.share and m.predicted_seconds is not None]
    return max(seconds, default=None)


def _speed(members: Sequence[DeviceReport]) -> str:
    return number(sum(m.share / m.seconds for m in members if m.share and m.seconds > 0) or None)


def _variants(members: Sequence[DeviceReport]) -> str:
    return ", ".join(dict.fromkeys(m.variant for m in members if m.share)) or "-"
