"""The sections of an explanation that only iterative jobs have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hetsched.explain.text.headline import subject_lines
from hetsched.text import columns, grouped_rows, number, seconds_column
from hetsched.units import counted, format_bytes, format_seconds

if TYPE_CHECKING:
    from hetsched.explain.iterations.records import IterationHistory, IterationSpan, RowMove
    from hetsched.explain.records import Explanation

MAX_MOVE_LINES = 12
"""Further moves are counted only: the first and the last ones say most."""
MAX_NAMED_DEVICES = 4
"""A move of more devices gives the number of rows only."""
MAX_GROUP_ROWS = 8
MAX_PROGRESS_ROWS = 10
PHASES = ("compute", "transfer", "wait", "converge", "save")


def iteration_headline(explanation: Explanation, history: IterationHistory) -> list[str]:
    """Return the job, its error if any, how many iterations it did and where it got."""
    lines = subject_lines(explanation)
    computed = history.iterations - history.first + 1
    if explanation.job is None:
        return [
            *lines,
            f"{counted(explanation.load, 'row')}, which move while it runs if that pays",
        ]
    if computed <= 0:
        return [*lines, f"{counted(explanation.load, 'row')}, no complete iteration"]
    line = (
        f"{counted(explanation.load, 'row')}, {counted(computed, 'iteration')} in"
        f" {format_seconds(history.seconds)} ({format_seconds(history.seconds / computed)} each)"
    )
    if history.residual is not None:
        line += f", residual {history.residual:.3g}"
    lines.append(line + _ending(history))
    if history.first > 1:
        lines.append(f"continued from a checkpoint after iteration {history.first - 1}")
    return lines


def _ending(history: IterationHistory) -> str:
    if history.converged is None:
        return ""
    return ", converged" if history.converged else ", not converged"


def phase_table(
    explanation: Explanation, history: IterationHistory, width: int | None
) -> list[str]:
    """Return each device's rows, and how it spent the time of all iterations."""
    if not history.spans:
        return []
    variants = {device.device: device.variant for device in explanation.devices}
    indices = {name: index for index, name in enumerate(history.devices)}
    first, last = history.spans[0].rows, history.spans[-1].rows
    totals = {phase: phase_seconds(history.spans, phase) for phase in PHASES}
    phases = [phase for phase in PHASES if any(totals[phase])]
    sums = [sum(totals[phase][i] for phase in phases) for i in indices.values()]
    whole = max(history.seconds, *sums)  # a device may wait before the others begin
    rows = []
    for label, members in grouped_rows(history.devices, str, MAX_GROUP_ROWS):
        own = [indices[name] for name in members]
        seconds = [sum(totals[phase][i] for i in own) / len(own) for phase in phases]
        names = dict.fromkeys(variants.get(name, "") for name in members)
        rows.append(
            [
                label,
                ", ".join(filter(None, names)),
                str(sum(first[i] for i in own)),
                str(sum(last[i] for i in own)),
                *(_percent(value, whole) for value in seconds),
            ]
        )
    title = f"where the time went, of {format_seconds(whole)}:"
    header = ("device", "variant", "first rows", "last rows", *phases)
    return [title, *columns(header, rows, left_columns=2, width=width)]


def first_rows_table(explanation: Explanation, width: int | None) -> list[str]:
    """Return each device's rows in the first iteration, and its predicted time, of a plan."""
    if explanation.job is not None:
        return []
    rows = []
    for label, members in grouped_rows(explanation.devices, lambda d: d.device, MAX_GROUP_ROWS):
        seconds = [d.predicted_seconds for d in members if d.predicted_seconds is not None]
        longest = format_seconds(max(seconds)) if seconds else "not measured"
        variants = ", ".join(dict.fromkeys(device.variant for device in members))
        rows.append([label, variants, str(sum(d.planned for d in members)), longest])
    header = ("device", "variant", "rows", "of an iteration")
    return ["first iteration:", *columns(header, rows, left_columns=2, width=width)]


def phase_seconds(spans: Sequence[IterationSpan], phase: str) -> list[float]:
    """Return each device's seconds in one phase, in all `spans`."""
    columns_of_spans = zip(*(getattr(span, phase) for span in spans), strict=True)
    counts = [span.count for span in spans]
    return [
        sum(value * count for value, count in zip(column, counts, strict=True))
        for column in columns_of_spans
    ]


def _percent(value: float, total: float) -> str:
    return f"{100 * value / total:.1f} %" if total else "-"


def progress_table(history: IterationHistory, width: int | None) -> list[str]:
    """Return some iterations, the first ones and then about twice as many each time."""
    if len(history.spans) < 2:
        return []
    spans = _samples(history.spans)
    shares = len(history.devices) <= MAX_NAMED_DEVICES
    header = ["iteration", "seconds", "residual", *(history.devices if shares else ())]
    seconds = seconds_column([span.seconds for span in spans])
    rows = [
        [
            str(span.last),
            cell,
            "-" if span.residual is None else f"{span.residual:.3g}",
            *(map(str, span.rows) if shares else ()),
        ]
        for span, cell in zip(spans, seconds, strict=True)
    ]
    if all(span.residual is None for span in spans):
        header, rows = _without(header, 2), [_without(row, 2) for row in rows]
    title = "iterations (seconds of each, rows of each device):" if shares else "iterations:"
    return [title, *columns(header, rows, left_columns=0, width=width)]


def _without(cells: list[str], index: int) -> list[str]:
    return cells[:index] + cells[index + 1 :]


def _samples(spans: Sequence[IterationSpan]) -> list[IterationSpan]:
    """Return the first, second, fourth, ... and the last of `spans`."""
    steps = [1 << power for power in range(len(spans).bit_length())]
    indices = sorted({step - 1 for step in steps} | {len(spans) - 1})
    if len(indices) > MAX_PROGRESS_ROWS:
        every = -(-len(indices) // MAX_PROGRESS_ROWS)
        indices = sorted({*indices[::-1][::every], 0})
    return [spans[index] for index in indices]


def move_lines(history: IterationHistory) -> list[str]:
    """Return when and why rows moved, what it cost and what it gained."""
    moves = history.moves
    if not moves:
        return []
    half = MAX_MOVE_LINES // 2
    omitted = history.omitted_moves
    shown = moves
    if len(moves) > MAX_MOVE_LINES:
        omitted += len(moves) - MAX_MOVE_LINES
        shown = (*moves[:half], *moves[-half:])
    lines = [_move_line(move, history.devices) for move in shown]
    if omitted:
        lines.insert(half, f"({omitted} more in between)")
    gains = [move.gain for move in moves if move.kind == "balance" and move.gain is not None]
    if len(gains) > 1:
        lines.append(f"all moves for balance together {_gained(sum(gains))}")
    return ["when and why rows moved:", *(f"  {line}" for line in lines)]


def _move_line(move: RowMove, devices: Sequence[str]) -> str:
    changes = [
        f"{name} {was} -> {now}"
        for name, was, now in zip(devices, move.before, move.rows, strict=True)
        if was != now
    ]
    named = f" ({', '.join(changes)})" if len(changes) <= MAX_NAMED_DEVICES else ""
    line = f"after iteration {move.after}: {counted(move.moved, 'row')}{named}"
    reason = f"{move.reason}{_busy(move, devices)}"
    parts = [part for part in (reason, _effect(move), _cost(move), _gain(move)) if part]
    return f"{line}: {'; '.join(parts)}" if parts else line


def _busy(move: RowMove, devices: Sequence[str]) -> str:
    """Return " (cpu0 was busy for 2.3 ms, cpu1 for 1.3 ms)": the longest and the shortest."""
    times = {
        device: seconds
        for device, seconds, rows in zip(devices, move.busy, move.before, strict=False)
        if rows
    }
    if move.kind != "balance" or len(times) < 2:
        return ""
    most, least = max(times, key=times.__getitem__), min(times, key=times.__getitem__)
    return (
        f" ({most} was busy for {format_seconds(times[most])},"
        f" {least} for {format_seconds(times[least])})"
    )


def _effect(move: RowMove) -> str:
    if move.seconds_before is None or move.seconds_after is None:
        return ""
    expected = ""
    if move.expected_after is not None:
        expected = f" (expected {format_seconds(move.expected_after)})"
    return (
        f"{format_seconds(move.seconds_before)} -> {format_seconds(move.seconds_after)}"
        f" an iteration{expected}"
    )


def _cost(move: RowMove) -> str:
    expected = ""
    if move.expected_cost is not None:
        expected = f" (expected {format_seconds(move.expected_cost)})"
    if move.cost is None:
        return f"cost not known yet{expected}" if expected else ""
    return f"cost {format_seconds(move.cost)}{expected}"


def _gain(move: RowMove) -> str:
    if move.gain is None or move.kind != "balance":
        return ""
    return f"{_gained(move.gain)} in {counted(move.iterations, 'iteration')}"


def _gained(seconds: float) -> str:
    return f"{'gained' if seconds >= 0 else 'lost'} {format_seconds(abs(seconds))}"


def checkpoint_lines(history: IterationHistory) -> list[str]:
    """Return what checkpoints and lost devices cost."""
    lines = []
    if history.written_checkpoints:
        last = history.checkpoints[-1]
        size = f", {format_bytes(last.nbytes)}" if last.nbytes else ""
        fraction = history.checkpoint_seconds / (history.seconds or 1.0)
        lines.append(
            f"{counted(history.written_checkpoints, 'checkpoint')}, the last after iteration"
            f" {last.iteration}{size}; the devices paused for"
            f" {format_seconds(history.checkpoint_seconds)} ({number(100 * fraction)} % of the"
            " iterations' time)"
        )
    if history.repeated:
        lines.append(
            f"{counted(history.repeated, 'iteration')} computed again after a device was lost"
        )
    return lines
