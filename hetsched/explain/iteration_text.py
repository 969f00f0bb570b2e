"""The text of an iterative job's explanation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hetsched.explain.records import ITERATION_PHASES
from hetsched.text import columns, grouped_rows, number, seconds_column
from hetsched.units import counted, format_bytes, format_seconds

if TYPE_CHECKING:
    from hetsched.explain.records import Explanation, IterationHistory, IterationSpan, RowMove

MAX_MOVE_LINES = 12
"""Further moves are counted only: the first and the last ones say most."""
MAX_NAMED_DEVICES = 4
"""A move of more devices gives the number of rows only."""
MAX_PROGRESS_ROWS = 10


def first_rows_table(explanation: Explanation, width: int | None) -> list[str]:
    """Return each device's rows in the first iteration, and its predicted time, of a plan."""
    if explanation.job is not None:
        return []
    rows = []
    for label, members in grouped_rows(explanation.devices, lambda d: d.device):
        seconds = [d.predicted_seconds for d in members if d.predicted_seconds is not None]
        longest = format_seconds(max(seconds)) if seconds else "not measured"
        variants = ", ".join(dict.fromkeys(device.variant for device in members))
        rows.append([label, variants, str(sum(d.planned for d in members)), longest])
    header = ("device", "variant", "rows", "of an iteration")
    return ["first iteration:", *columns(header, rows, left_columns=2, width=width)]


def head_lines(explanation: Explanation, history: IterationHistory) -> list[str]:
    rows = counted(explanation.load, "row")
    if explanation.job is None:
        return [f"{rows}, which move while it runs if that pays"]
    computed = history.iterations - history.first + 1
    if computed <= 0:
        return [f"{rows}, no complete iteration"]
    line = (
        f"{rows}, {counted(computed, 'iteration')} in {format_seconds(history.seconds)}"
        f" ({format_seconds(history.seconds / computed)} each)"
    )
    if history.residual is not None:
        line += f", residual {history.residual:.3g}"
    if history.converged is not None:
        line += ", converged" if history.converged else ", not converged"
    if history.first > 1:
        return [line, f"continued from a checkpoint after iteration {history.first - 1}"]
    return [line]


def phase_table(
    explanation: Explanation, history: IterationHistory, width: int | None
) -> list[str]:
    if not history.spans:
        return []
    variants = {device.device: device.variant for device in explanation.devices}
    indices = {name: index for index, name in enumerate(history.devices)}
    first, last = history.spans[0].rows, history.spans[-1].rows
    totals = {phase: _phase_seconds(history.spans, phase) for phase in ITERATION_PHASES}
    phases = [phase for phase in ITERATION_PHASES if any(totals[phase])]
    sums = [sum(totals[phase][i] for phase in phases) for i in indices.values()]
    whole = max(history.seconds, *sums)  # a device may wait before the others begin
    rows = []
    for label, members in grouped_rows(history.devices, str):
        own = [indices[name] for name in members]
        seconds = [sum(totals[phase][i] for i in own) / len(own) for phase in phases]
        names = dict.fromkeys(variants.get(name, "") for name in members)
        rows.append(
            [
                label,
                ", ".join(filter(None, names)),
                str(sum(first[i] for i in own)),
                str(sum(last[i] for i in own)),
                *(f"{100 * value / whole:.1f} %" if whole else "-" for value in seconds),
            ]
        )
    title = f"where the time went, of {format_seconds(whole)}:"
    header = ("device", "variant", "first rows", "last rows", *phases)
    return [title, *columns(header, rows, left_columns=2, width=width)]


def _phase_seconds(spans: Sequence[IterationSpan], phase: str) -> list[float]:
    weighted = ([value * s.count for value in getattr(s, phase)] for s in spans)
    return [sum(column) for column in zip(*weighted, strict=True)]


def progress_table(history: IterationHistory, width: int | None) -> list[str]:
    """Return some iterations, the first ones and then about twice as many each time."""
    if len(history.spans) < 2:
        return []
    spans = _samples(history.spans)
    table = [["iteration", *(str(span.last) for span in spans)]]
    table.append(["seconds", *seconds_column([span.seconds for span in spans])])
    if any(span.residual is not None for span in spans):
        residuals = ("-" if s.residual is None else f"{s.residual:.3g}" for s in spans)
        table.append(["residual", *residuals])
    title = "iterations:"
    if len(history.devices) <= MAX_NAMED_DEVICES:
        title = "iterations (seconds of each, rows of each device):"
        for index, device in enumerate(history.devices):
            table.append([device, *(str(span.rows[index]) for span in spans)])
    header, *rows = zip(*table, strict=True)
    return [title, *columns(header, rows, left_columns=0, width=width)]


def _samples(spans: Sequence[IterationSpan]) -> list[IterationSpan]:
    """Return the first, second, fourth, ... and the last of `spans`."""
    steps = [1 << power for power in range(len(spans).bit_length())]
    indices = sorted({step - 1 for step in steps} | {len(spans) - 1})
    if len(indices) > MAX_PROGRESS_ROWS:
        every = -(-len(indices) // MAX_PROGRESS_ROWS)
        indices = sorted({*indices[::-1][::every], 0})
    return [spans[index] for index in indices]


def move_lines(history: IterationHistory) -> list[str]:
    moves = history.moves
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
    return lines


def _move_line(move: RowMove, devices: Sequence[str]) -> str:
    changes = [
        f"{name} {was} -> {now}"
        for name, was, now in zip(devices, move.before, move.rows, strict=True)
        if was != now
    ]
    named = f" ({', '.join(changes)})" if len(changes) <= MAX_NAMED_DEVICES else ""
    line = f"after iteration {move.after}: {counted(move.moved, 'row')}{named}"
    parts = [f"{move.reason}{_busy(move, devices)}"]
    if move.seconds_before is not None and move.seconds_after is not None:
        parts.append(
            f"{format_seconds(move.seconds_before)} -> {format_seconds(move.seconds_after)}"
            f" an iteration{_expected(move.expected_after)}"
        )
    if move.cost is not None:
        parts.append(f"cost {format_seconds(move.cost)}{_expected(move.expected_cost)}")
    elif move.expected_cost is not None:
        parts.append(f"cost not known yet{_expected(move.expected_cost)}")
    if move.gain is not None and move.kind == "balance":
        parts.append(f"{_gained(move.gain)} in {counted(move.iterations, 'iteration')}")
    said = "; ".join(filter(None, parts))
    return f"{line}: {said}" if said else line


def _expected(seconds: float | None) -> str:
    return "" if seconds is None else f" (expected {format_seconds(seconds)})"


def _gained(seconds: float) -> str:
    return f"{'gained' if seconds >= 0 else 'lost'} {format_seconds(abs(seconds))}"


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


def checkpoint_lines(history: IterationHistory) -> list[str]:
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
