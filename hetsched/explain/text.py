"""The text of an explanation: all statements follow from the record's figures."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from hetsched.explain.iteration_text import (
    checkpoint_lines,
    first_rows_table,
    head_lines,
    move_lines,
    phase_table,
    progress_table,
)
from hetsched.explain.records import PHASES
from hetsched.text import (
    MAX_GROUP_ROWS,
    clean,
    columns,
    folded,
    grouped_rows,
    named_rows,
    parameters,
    seconds_column,
)
from hetsched.units import counted, format_seconds

if TYPE_CHECKING:
    from hetsched.explain.records import (
        Alternative,
        DeviceExplanation,
        Explanation,
    )

    Rows = list[tuple[str, list[DeviceExplanation]]]
    """(label, devices): one device each, or many of one kind."""

MAX_CHUNK_SIZES = 6
"""Sizes of chunks in a row; the middle of more is omitted."""
MIN_SAVING = 0.01
"""Part of the time; smaller savings aren't worth a line."""
MIN_LOST_FRACTION = 0.05
"""Part of the time; a smaller loss is normal."""

BREAKDOWN = (
    ("computing", "computing"), ("copying", "only copying"), ("between", "between chunks"),
    ("before", "before the first"), ("idle", "after the last"),
)  # fmt: skip
"""Field, column."""


def explanation_text(explanation: Explanation, width: int | None = None) -> str:
    """Return all sections, in lines of about 100 characters, or at most `width` if possible."""
    history = explanation.iterations
    if history is None:
        sections = _single_pass(explanation, width)
    else:
        sections = [
            [*_subject_lines(explanation), *head_lines(explanation, history)],
            first_rows_table(explanation, width),
            phase_table(explanation, history, width),
            progress_table(history, width),
            _reason_lines(explanation),
            _titled("when and why rows moved:", move_lines(history)),
            checkpoint_lines(history),
        ]
    lines = [clean(line) for section in sections if section for line in ("", *section)]
    if width is not None:
        lines = [part for line in lines for part in folded(line, width)]
    return "\n".join(lines[1:])


def _single_pass(explanation: Explanation, width: int | None) -> list[list[str]]:
    weighed = [
        f"{option.what}: gains {format_seconds(option.gain)}, a trial costs"
        f" {format_seconds(option.cost)}: {'tried' if option.is_tried else 'not tried'}"
        for option in explanation.weighed
    ]
    return [
        [*_subject_lines(explanation), _time_line(explanation), *_bound_lines(explanation)],
        _share_table(explanation),
        _seconds_table(explanation, width),
        _breakdown_table(explanation, width),
        _reason_lines(explanation),
        _titled("what might be faster (expected in the runs to come):", weighed),
        _alternative_lines(explanation),
        _titled("warnings:", run_warnings(explanation)),
        _titled("what would help:", _what_if_lines(explanation)),
    ]


def _titled(title: str, lines: Iterable[str]) -> list[str]:
    """Return the lines, indented, below their title; nothing without lines."""
    indented = [f"  {line}" for line in lines]
    return [title, *indented] if indented else []


# ---- head


def _subject_lines(explanation: Explanation) -> list[str]:
    subject = "a plan"
    if explanation.job is not None:
        subject = f"job {explanation.job}, {explanation.state}"
    lines = [f"{subject}: {explanation.workload} {parameters(explanation.params)}".rstrip()]
    if explanation.error:
        lines.append(f"ended early: {explanation.error}")
    return lines


def _time_line(explanation: Explanation) -> str:
    seconds, predicted = explanation.seconds, explanation.predicted_seconds
    units = counted(explanation.load, "unit")
    done = sum(device.share for device in explanation.devices)
    if explanation.job is not None and done < explanation.load:
        units = f"{done} of {units}"
    if predicted is None:
        took = "" if seconds is None else f" in {format_seconds(seconds)}"
        return f"{units}{took}, no prediction: {_unmeasured(explanation)}"
    if seconds is None:
        return f"{units}, predicted to take {format_seconds(predicted)}"
    error = f", {_signed_percent(seconds / predicted - 1)}" if done == explanation.load else ""
    return f"{units} in {format_seconds(seconds)} (predicted {format_seconds(predicted)}{error})"


def _unmeasured(explanation: Explanation) -> str:
    """List the variants without a prediction, and their devices."""
    devices: dict[str, list[str]] = {}
    for device in explanation.devices:
        if device.predicted_seconds is None:
            devices.setdefault(device.variant, []).append(device.device)
    if not devices:
        return "nothing was planned"
    (first, names), *others = devices.items()
    further = "".join(f", nor for {variant} on {named_rows(n)}" for variant, n in others)
    return f"no measurements for {first} at this size on {named_rows(names)}{further}"


def _bound_lines(explanation: Explanation) -> list[str]:
    bound = explanation.bound
    if bound is None:
        return []
    gaps = []
    if explanation.predicted_seconds is not None:
        gaps.append(f"the plan is {_gap(explanation.predicted_seconds / bound - 1)}")
    if explanation.seconds is not None and explanation.state == "done":
        gaps.append(f"the run was {_gap(explanation.seconds / bound - 1)}")
    return [", ".join([f"bound of any split by the models: {format_seconds(bound)}", *gaps])]


def _gap(gap: float) -> str:
    return f"{100 * abs(gap):.1f} % {'above' if gap >= 0 else 'below'}"


def _signed_percent(ratio: float) -> str:
    return f"{100 * ratio:+.1f} %"


# ---- tables


def _device_rows(explanation: Explanation) -> Rows:
    return grouped_rows(explanation.devices, lambda device: device.device)


def _has_copies(explanation: Explanation) -> bool:
    phases = [p for device in explanation.devices for p in (device.measured, device.predicted)]
    return any(p is not None and p.copies > 0 for p in phases)


def _share_table(explanation: Explanation) -> list[str]:
    header = ["device", "variant", "share", "chunks"]
    devices = explanation.devices
    has_moved = explanation.job is not None and any(d.share != d.planned for d in devices)
    if has_moved:
        header.insert(3, "done")
    rows = []
    for label, members in _device_rows(explanation):
        row = [label, ", ".join(dict.fromkeys(member.variant for member in members))]
        row.append(str(sum(member.planned for member in members)))
        if has_moved:
            row.append(str(sum(member.share for member in members)))
        plans = list(dict.fromkeys(map(_chunks, members)))
        rows.append([*row, " or ".join(plans) if len(plans) <= 2 else f"{plans[0]} or similar"])
    if not rows:
        return []
    front = columns(header[:-1], [row[:-1] for row in rows], left_columns=2)
    last = [header[-1], *(row[-1] for row in rows)]
    start = max(map(len, front)) + 2
    return [line.ljust(start) + text for line, text in zip(front, last, strict=True)]


def _chunks(device: DeviceExplanation) -> str:
    sizes = chunk_sizes(device.chunks, device.planned_chunks)
    if device.mode == "ring":
        return f"{sizes}, a ring of {counted(device.slots, 'slot')}"
    return f"{sizes}, installments" if device.mode else sizes


def chunk_sizes(chunks: Sequence[tuple[int, int]], number: int) -> str:
    """Format ((9, 4), (1, 2)) as "9x4 + 2"; of a long list the ends, and the `number` of all."""
    parts = [f"{count}x{units}" if count > 1 else str(units) for count, units in chunks]
    if len(parts) <= MAX_CHUNK_SIZES:
        return " + ".join(parts) or "-"
    half = MAX_CHUNK_SIZES // 2
    shortened = [*parts[:half], "...", *parts[-half:]]
    return f"{' + '.join(shortened)} ({number} chunks)"


def _seconds_table(explanation: Explanation, width: int | None) -> list[str]:
    rows, devices = _device_rows(explanation), explanation.devices
    is_measured = any(device.measured for device in devices)
    is_predicted = any(device.predicted_seconds for device in devices)
    if not is_measured and not is_predicted:
        return []
    header, cells = ["device", "total"], [_pairs(rows, "total")]
    for field, name in PHASES:
        column = _pairs(rows, field)
        if any(cell != "-" for cell in column):
            header.append(name)
            cells.append(column)
    if _has_copies(explanation):
        header.append("hidden")
        cells.append([_hidden(members) for _, members in rows])
    body = [[label, *row] for (label, _), row in zip(rows, zip(*cells, strict=True), strict=True)]
    lines = columns(header, body, left_columns=1)
    if width is not None and len(lines[0]) > width:
        body = [[cell.replace(" / ", "/") for cell in row] for row in body]
        lines = columns(header, body, left_columns=1, width=width)
    sources = ["measured"] * is_measured + ["predicted"] * is_predicted
    return [f"seconds, {' / '.join(sources)}:", *lines]


def _pairs(rows: Rows, field: str) -> list[str]:
    """Format each row's maximum, measured and predicted, as "0.603 / 0.619"."""
    longest = [
        max(filter(None, (_seconds(d, source, field) for d in members)), default=None)
        for source in ("", "predicted")
        for _, members in rows
    ]
    formatted = seconds_column(longest)
    first, second = formatted[: len(rows)], formatted[len(rows) :]
    if all(cell == "-" for cell in first) or all(cell == "-" for cell in second):
        return [b if a == "-" else a for a, b in zip(first, second, strict=True)]
    return ["-" if a == b == "-" else f"{a} / {b}" for a, b in zip(first, second, strict=True)]


def _seconds(device: DeviceExplanation, source: str, field: str) -> float | None:
    if field == "total":
        return device.predicted_seconds if source else device.seconds
    return getattr(device.predicted if source else device.measured, field, None)


def _hidden(members: Sequence[DeviceExplanation]) -> str:
    both = ([m.hidden for m in members], [m.predicted_hidden for m in members])
    present = [[value for value in values if value is not None] for values in both]
    means = [f"{100 * sum(values) / len(values):.0f} %" for values in present if values]
    return " / ".join(means) or "-"


def _breakdown_table(explanation: Explanation, width: int | None) -> list[str]:
    """Return each device's use of time as fractions of the job's time; each row sums to 1."""
    total = explanation.seconds
    if not total or not any(device.time_breakdown for device in explanation.devices):
        return []
    used = [pair for pair in BREAKDOWN if pair[0] != "copying" or _has_copies(explanation)]
    rows = []
    for label, members in _device_rows(explanation):
        parts = [member.time_breakdown for member in members if member.time_breakdown]
        if parts:
            sums = [sum(getattr(part, field) for part in parts) for field, _ in used]
            rows.append([label, *(f"{100 * each / len(parts) / total:.1f} %" for each in sums)])
    title = f"where the time went, of {format_seconds(total)}:"
    return [title, *columns(("device", *(name for _, name in used)), rows, width=width)]


# ---- reasons


_SHARE = re.compile(r"(\S+?)(\d*): (\d+ units?|no share,) (.*)")
"""Group, number, share and reason of one device."""


def _reason_lines(explanation: Explanation) -> list[str]:
    lines = [*_condensed(explanation.reasons), *(f"note: {note}" for note in explanation.notes)]
    devices: dict[str, list[str]] = {}
    for device in explanation.devices:
        calls = ""
        if device.units_per_call:
            most = counted(device.units_per_call, "unit")
            calls = f"calls of the library compute at most {most} each"
        for reason in filter(None, (device.chunk_reason, device.call_reason, calls)):
            devices.setdefault(reason, []).append(device.device)
    chunks = [f"{named_rows(names)}: {reason}" for reason, names in devices.items()]
    return _titled("why this split:", lines) + _titled("why these chunks:", chunks)


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
    lines: list[str] = []
    for (_, cause), members in groups.items():
        if len(members) <= MAX_GROUP_ROWS:
            lines += [reason for _, _, reason in members]
            continue
        low, high = min(m[1] for m in members), max(m[1] for m in members)
        least = "" if low == high else f"{low} to "
        share = f"{least}{counted(high, 'unit')} each" if high else "no share,"
        lines.append(f"{members[0][0]} to {members[-1][0]}: {share} {cause}")
    return lines


# ---- alternatives and changes


def _alternative_lines(explanation: Explanation) -> list[str]:
    lines: list[str] = []
    if explanation.alternatives and explanation.predicted_seconds:
        lines += _alternative_rows(explanation.alternatives, explanation.predicted_seconds)
    for device in explanation.devices:
        predicted = device.predicted_seconds
        if predicted and device.alternatives:
            units, seconds = counted(device.planned, "unit"), format_seconds(predicted)
            bound = "" if device.bound is None else f", bound {format_seconds(device.bound)}"
            lines.append(f"{device.device}, {units} in {seconds} as planned{bound}:")
            lines += (f"  {row}" for row in _alternative_rows(device.alternatives, predicted))
    return _titled("alternatives (predicted):", lines)


def _alternative_rows(alternatives: Sequence[Alternative], planned: float) -> list[str]:
    rows = [
        (a.description, format_seconds(a.seconds), _signed_percent(a.seconds / planned - 1))
        for a in alternatives
    ]
    widths = [max(len(row[i]) for row in rows) for i in range(3)]
    return [
        f"{a.ljust(widths[0])}  {b.rjust(widths[1])}  {c.rjust(widths[2])}" for a, b, c in rows
    ]


def _what_if_lines(explanation: Explanation) -> list[str]:
    changes = sorted(explanation.what_if, key=lambda change: -change.saves)
    lines = [
        f"{change.change}: {format_seconds(change.seconds)}, {100 * change.saves:.0f} % less"
        for change in changes
        if change.saves >= MIN_SAVING
    ]
    useless = [change.change for change in explanation.what_if if change.saves < MIN_SAVING]
    if useless:
        lines.append(f"would save less than 1 %: {', '.join(useless)}")
    return lines


# ---- warnings


def run_warnings(explanation: Explanation) -> list[str]:
    busy = [d for d in explanation.devices if d.timeline is not None and d.seconds]
    total = explanation.seconds
    if not busy or not total:
        return []
    lines = [_unequal_ends(busy, total)]
    if explanation.state == "done":
        lines += [
            f"{device.device} ran {counted(device.moved_units, 'unit')} assigned to other devices"
            for device in explanation.devices
            if device.moved_units > 0
        ]
    for _, members in grouped_rows(busy, lambda device: device.device, 0):
        device = max(members, key=lambda d: abs(_prediction_error(d)))
        error = _prediction_error(device)
        if abs(error) >= 2 * MIN_LOST_FRACTION:
            runs = "" if device.runs is None else f" by a model of {counted(device.runs, 'run')}"
            more = f"{100 * abs(error):.0f} % {'longer' if error > 0 else 'less'}"
            lines.append(f"{device.device} took {more} than predicted{runs}")
    lines += [_lost_time(field, busy, total) for field in ("copying", "between", "before")]
    late = sum(device.late for device in explanation.devices)
    if late:
        phases = counted(late, "phase")
        lines.append(f"{phases} took longer than modelled: the times are not valid")
    return [line for line in lines if line]


def _lost_time(field: str, busy: list[DeviceExplanation], total: float) -> str:
    """Return the device that lost the most time in one way; "" if that is little."""
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
    """Return how far apart the devices finished; "" if no other split would have helped."""
    ends = {d.device: d.timeline.makespan for d in busy if d.timeline is not None}
    first, last = min(ends, key=lambda name: ends[name]), max(ends, key=lambda name: ends[name])
    if ends[last] < (1 + MIN_LOST_FRACTION) * ends[first]:
        return ""
    balanced = _balanced_seconds(busy)
    if balanced > (1 - MIN_SAVING) * total:
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


def _prediction_error(device: DeviceExplanation) -> float:
    """Return the relative error; 0 if the share changed during the run.

    Of a device that took units of a tail: per unit.
    """
    if not device.predicted_seconds or not device.seconds or device.moved_units:
        return 0.0
    return device.seconds / device.share / (device.predicted_seconds / device.planned) - 1
