"""An account in words, as lines for people: every claim is a figure of the record, or some put
together.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING

from hetsched.explain.findings import findings
from hetsched.text import MAX_CORES, clean, columns, folded, seconds_column, together
from hetsched.units import counted, format_seconds

if TYPE_CHECKING:
    from hetsched.explain.records import Account, DeviceAccount, Phases, Spent, Way

WORTH = 0.01
"""Savings below this are none. Arbitrary."""
LEAST_ROOM = 24
"""Characters that a column of text has at least."""
MOST_SIZES = 6
"""Different sizes of chunks that are named in a row."""
PHASES = (("copy_in", "copy in"), ("compute", "compute"), ("copy_out", "copy out"))
SPENT = (
    ("computing", "computing"), ("copying", "only copying"), ("between", "between chunks"),
    ("before", "before the first"), ("idle", "after the last"),
)  # fmt: skip

Rows = list[tuple[str, list["DeviceAccount"]]]


def text(account: Account, width: int | None = None) -> str:
    """All of it, in lines of about 100 characters, or of at most `width` where that can be."""
    sections = [_head(account), _table(account, width), _times(account, width)]
    sections.append(_where(account, width))
    sections += [_reasons(account), _instead(account), _noticed(account), _helps(account)]
    lines = [clean(line) for part in sections if part for line in ("", *part)]
    if width is not None:
        lines = [part for line in lines for part in folded(line, width)]
    return "\n".join(lines[1:])


def sizes(chunks: Sequence[tuple[int, int]], number: int) -> str:
    """((9, 4), (1, 2)) -> "9x4 + 2"; the middle of a long list is left out.

    `number`: of all chunks.
    """
    parts = [f"{count}x{units}" if count > 1 else str(units) for count, units in chunks]
    if len(parts) <= MOST_SIZES:
        return " + ".join(parts) or "-"
    half = MOST_SIZES // 2
    shown = [*parts[:half], "...", *parts[-half:]]
    return f"{' + '.join(shown)} ({number} chunks)"


def _head(account: Account) -> list[str]:
    params = " ".join(f"{key}={value}" for key, value in account.params.items())
    who = "a plan" if account.job is None else f"job {account.job}, {account.state}"
    lines = [f"{who}: {account.workload} {params}".rstrip(), *_error(account), _headline(account)]
    return [*lines, *_bound(account)]


def _error(account: Account) -> list[str]:
    return [f"it ended early: {account.error}"] if account.error else []


def _headline(account: Account) -> str:
    seconds, predicted = account.seconds, account.predicted_seconds
    units = counted(account.load, "unit")
    done = sum(one.share for one in account.devices)
    if account.job is not None and done < account.load:
        units = f"{done} of {units}"
    if seconds is None:
        if predicted is None:
            return f"{units}, no prediction: {_unmeasured(account)}"
        return f"{units}, predicted to take {format_seconds(predicted)}"
    if predicted is None:
        return f"{units} in {format_seconds(seconds)}, no prediction: {_unmeasured(account)}"
    against = f", {_percent(seconds / predicted - 1)}" if done == account.load else ""
    return f"{units} in {format_seconds(seconds)} (predicted {format_seconds(predicted)}{against})"


def _unmeasured(account: Account) -> str:
    groups: dict[str, list[str]] = {}
    for one in account.devices:
        if one.predicted_seconds is None:
            groups.setdefault(one.variant, []).append(one.device)
    if not groups:
        return "nothing was planned"
    where = [(variant, _named(names)) for variant, names in groups.items()]
    more = "".join(f", nor {variant} on {names}" for variant, names in where[1:])
    return f"{where[0][0]} was never measured at this on {where[0][1]}{more}"


def _bound(account: Account) -> list[str]:
    whole, fluid = account.whole_unit_bound, account.fluid_bound
    if whole is None or fluid is None:
        return []
    line = (
        f"by the models no split takes less than {format_seconds(whole)}"
        f" ({format_seconds(fluid)} if units could be cut)"
    )
    gaps = []
    if account.predicted_seconds is not None:
        gaps.append(f"the plan is {_above(account.predicted_seconds / whole - 1)} that")
    if account.seconds is not None and account.state == "done":
        gaps.append(f"the run was {_above(account.seconds / whole - 1)}{'' if gaps else ' that'}")
    return [line, ", ".join(gaps)] if gaps else [line]


def _above(gap: float) -> str:
    return f"{100 * abs(gap):.1f} % {'above' if gap >= 0 else 'below'}"


def _rows(account: Account) -> Rows:
    return together(account.devices, lambda one: one.device, MAX_CORES)


def _table(account: Account, width: int | None) -> list[str]:
    """Who does what."""
    header = ["device", "variant", "share", "chunks"]
    moved = account.job is not None and any(o.share != o.planned for o in account.devices)
    if moved:
        header.insert(3, "done")
    rows = []
    for label, members in _rows(account):
        row = [label, ", ".join(dict.fromkeys(one.variant for one in members))]
        row.append(str(sum(one.planned for one in members)))
        if moved:
            row.append(str(sum(one.share for one in members)))
        rows.append([*row, _chunks(members)])
    return _left_last(header, rows, width) if rows else []


def _left_last(header: list[str], rows: list[list[str]], width: int | None) -> list[str]:
    """Columns whose last one is text, folded below itself."""
    front = columns(header[:-1], [row[:-1] for row in rows], left=2)
    last = [header[-1], *(row[-1] for row in rows)]
    start = max(map(len, front)) + 2
    room = 10**6 if width is None else max(LEAST_ROOM, width - start)
    lines: list[str] = []
    for first, text in zip(front, last, strict=True):
        parts = [part.strip() for part in folded(text, room)]
        lines += [a.ljust(start) + b for a, b in zip_longest([first], parts, fillvalue="")]
    return lines


def _chunks(members: Sequence[DeviceAccount]) -> str:
    kinds = dict.fromkeys(_plan(one) for one in members)
    if len(kinds) <= 2:
        return " or ".join(kinds)
    first = members[0]
    return f"{_plan(first)} and the like"


def _plan(one: DeviceAccount) -> str:
    found = sizes(one.chunks, one.planned_chunks)
    if one.mode == "ring":
        return f"{found}, a ring of {counted(one.slots, 'slot')}"
    return f"{found}, installments" if one.mode else found


def _times(account: Account, width: int | None) -> list[str]:
    """Measured and predicted, of the whole and of each phase."""
    rows = _rows(account)
    if not any(one.measured or one.predicted_seconds for one in account.devices):
        return []
    cells = [_pairs(rows, lambda one: one.seconds, lambda one: one.predicted_seconds)]
    header = ["device", "whole"]
    for field, name in PHASES:
        found = _pairs(
            rows, _phase(field, lambda o: o.measured), _phase(field, lambda o: o.predicted)
        )
        if any(cell != "-" for cell in found):
            header.append(name)
            cells.append(found)
    if _copies(account):
        header.append("hidden")
        cells.append([_hidden(members) for _, members in rows])
    body = [[label, *row] for (label, _), row in zip(rows, zip(*cells, strict=True), strict=True)]
    lines = columns(header, body, left=1)
    if width is not None and len(lines[0]) > width:
        body = [[cell.replace(" / ", "/") for cell in row] for row in body]
        lines = columns(header, body, left=1, width=width)
    return [f"seconds{_which(account)}:", *lines]


def _which(account: Account) -> str:
    known = [
        word
        for word, there in (
            ("measured", any(one.measured for one in account.devices)),
            ("predicted", any(one.predicted_seconds for one in account.devices)),
        )
        if there
    ]
    return f", {' / '.join(known)}"


def _copies(account: Account) -> bool:
    sums = [s for one in account.devices for s in (one.measured, one.predicted) if s is not None]
    return any(s.copies > 0 for s in sums)


def _phase(
    field: str, of: Callable[[DeviceAccount], Phases | None]
) -> Callable[[DeviceAccount], float | None]:
    def seconds(one: DeviceAccount) -> float | None:
        sums = of(one)
        found: float | None = None if sums is None else getattr(sums, field)
        return found or None

    return seconds


def _pairs(
    rows: Rows,
    measured: Callable[[DeviceAccount], float | None],
    predicted: Callable[[DeviceAccount], float | None],
) -> list[str]:
    """ "0.603 / 0.619": the longest of each row's devices."""
    longest = [
        max((v for one in members if (v := value(one)) is not None), default=None)
        for value in (measured, predicted)
        for _, members in rows
    ]
    shown = seconds_column(longest)
    firsts, seconds = shown[: len(rows)], shown[len(rows) :]
    if all(one == "-" for one in firsts) or all(one == "-" for one in seconds):
        return [a if b == "-" else b for a, b in zip(firsts, seconds, strict=True)]
    return ["-" if a == b == "-" else f"{a} / {b}" for a, b in zip(firsts, seconds, strict=True)]


def _hidden(members: Sequence[DeviceAccount]) -> str:
    shares = [
        [v for v in values if v is not None]
        for values in ([one.hidden for one in members], [one.predicted_hidden for one in members])
    ]
    if not any(shares):
        return "-"
    shown = [f"{100 * sum(v) / len(v):.0f} %" if v else "-" for v in shares]
    return " / ".join(shown) if all(shares) else shown[0] if shares[0] else shown[1]


def _where(account: Account, width: int | None) -> list[str]:
    """Where the time went: shares of the job's, a device's row adding up to all of it."""
    total = account.seconds
    if not total or not any(one.spent for one in account.devices):
        return []
    known = [
        (label, [one.spent for one in members if one.spent]) for label, members in _rows(account)
    ]
    used = [pair for pair in SPENT if pair[0] != "copying" or _copies(account)]
    rows = [
        [label, *(f"{_mean(members, field) / total * 100:.1f} %" for field, _ in used)]
        for label, members in known
        if members
    ]
    title = f"where the time went, of {format_seconds(total)}:"
    return [title, *columns(("device", *(name for _, name in used)), rows, width=width)]


def _mean(members: Sequence[Spent], field: str) -> float:
    total: float = sum(getattr(one, field) for one in members)
    return total / len(members)


def _reasons(account: Account) -> list[str]:
    lines = [*_condensed(account.reasons), *_corrections(account)]
    lines += [f"note: {note}" for note in account.notes]
    found = ["why this split:", *(f"  {line}" for line in lines)] if lines else []
    whys: dict[str, list[str]] = {}
    for one in account.devices:
        if one.why:
            whys.setdefault(one.why, []).append(one.device)
    cut = [f"  {_named(names)}: {why}" for why, names in whys.items()]
    return [*found, "why these chunks:", *cut] if cut else found


def _corrections(account: Account) -> Iterable[str]:
    """Where more or less was expected than the plan's phases come to."""
    for one in account.devices[:MAX_CORES]:
        own = one.plan.makespan if one.plan is not None and one.mode else 0.0
        if not own or not one.predicted_seconds:
            continue
        ratio = one.predicted_seconds / own
        if abs(ratio - 1) >= WORTH:
            expected, phases = format_seconds(one.predicted_seconds), format_seconds(own)
            yield (
                f"{one.device}: {expected} expected, {ratio:.2f} times the {phases} of its phases,"
                " as its latest shares took"
            )


def _named(names: Sequence[str]) -> str:
    return ", ".join(label for label, _ in together(names, str, MAX_CORES))


_SHARE = re.compile(r"(\S+?)(\d*): (\d+ units?|no share,) (.*)")


def _condensed(reasons: Iterable[str]) -> list[str]:
    """Many devices of one kind that have their shares for one reason have one line."""
    groups: dict[tuple[str, str], list[tuple[str, int, str]]] = {}
    for reason in reasons:
        match = _SHARE.fullmatch(reason)
        if match is None:
            groups[reason, ""] = [("", 0, reason)]
            continue
        units = match[3].split()[0]
        key = match[1], match[4]
        entry = match[1] + match[2], int(units) if units.isdigit() else 0, reason
        groups.setdefault(key, []).append(entry)
    lines = []
    for (_, why), members in groups.items():
        if len(members) <= MAX_CORES:
            lines += [reason for _, _, reason in members]
            continue
        least, most = min(m[1] for m in members), max(m[1] for m in members)
        units = str(least) if least == most else f"{least} to {most}"
        given = f"{units} units each" if most else "no share,"
        lines.append(f"{members[0][0]} to {members[-1][0]}: {given} {why}")
    return lines


def _instead(account: Account) -> list[str]:
    """What other splits and other plans would take."""
    lines = []
    if account.ways and account.predicted_seconds:
        lines += _ways(account.ways, account.predicted_seconds, "  ")
    for one in account.devices:
        own = one.plan.makespan if one.plan is not None else 0.0
        if not own or not one.ways:
            continue
        bound = (
            "" if one.bound is None else f", no plan takes less than {format_seconds(one.bound)}"
        )
        units = counted(one.planned, "unit")
        lines.append(f"  {one.device}, {units} in {format_seconds(own)} as planned{bound}:")
        lines += _ways(one.ways, own, "    ")
    return ["instead, by the models:", *lines] if lines else []


def _ways(ways: Sequence[Way], own: float, indent: str) -> list[str]:
    rows = [
        (way.what, format_seconds(way.seconds), _percent(way.seconds / own - 1)) for way in ways
    ]
    widths = [max(len(row[i]) for row in rows) for i in range(3)]
    return [
        f"{indent}{a.ljust(widths[0])}  {b.rjust(widths[1])}  {c.rjust(widths[2])}"
        for a, b, c in rows
    ]


def _percent(ratio: float) -> str:
    return f"{100 * ratio:+.1f} %"


def _noticed(account: Account) -> list[str]:
    lines = findings(account)
    return ["to be noticed:", *(f"  {line}" for line in lines)] if lines else []


def _helps(account: Account) -> list[str]:
    useful = sorted((w for w in account.what_if if w.saves >= WORTH), key=lambda w: -w.saves)
    lines = [f"{w.what}: {format_seconds(w.seconds)}, {100 * w.saves:.0f} % less" for w in useful]
    useless = [w.what for w in account.what_if if w.saves < WORTH]
    if useless:
        lines.append(f"would save less than 1 %: {', '.join(useless)}")
    return ["what would help:", *(f"  {line}" for line in lines)] if lines else []
