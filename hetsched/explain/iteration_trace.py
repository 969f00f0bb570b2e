"""The iterations of a job as events of a trace (see `trace`).

Each device has one thread with its phases, one after the other; checkpoints and moves of rows are
marks, the residual and the rows are counters. Iterations that share a span are drawn as one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from hetsched.units import counted

if TYPE_CHECKING:
    from hetsched.explain.iterations.records import IterationHistory, IterationSpan

Event = dict[str, Any]

TRACED_PHASES = ("save", "transfer", "compute", "wait", "converge")
"""In the order in which they are drawn; the record has no order within an iteration."""
_TID = 1


def iteration_events(history: IterationHistory) -> Iterator[Event]:
    """Yield all events of a job."""
    for pid, device in enumerate(history.devices, start=1):
        yield {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": device}}
        yield {
            "ph": "M", "name": "thread_name", "pid": pid, "tid": _TID,
            "args": {"name": "iterations"},
        }  # fmt: skip
    start = 0.0
    for span in history.spans:
        for pid in range(1, len(history.devices) + 1):
            yield from _span_events(pid, start, span)
        yield from _counters(start, span)
        start += span.seconds * span.count
    for move in history.moves:
        reason = f": {move.reason}" if move.reason else ""
        name = f"{counted(move.moved, 'row')} moved{reason}"
        yield _mark(_start_of(history, move.after + 1), name)
    for checkpoint in history.checkpoints:
        yield _mark(_start_of(history, checkpoint.iteration + 1), "checkpoint")


def _span_events(pid: int, start: float, span: IterationSpan) -> Iterator[Event]:
    label = str(span.first) if span.count == 1 else f"{span.first}-{span.last}"
    rows = span.rows[pid - 1]
    for phase in TRACED_PHASES:
        seconds = getattr(span, phase)[pid - 1] * span.count
        if seconds > 0:
            yield {
                "ph": "X",
                "pid": pid,
                "tid": _TID,
                "ts": _microseconds(start),
                "dur": _microseconds(seconds),
                "name": phase,
                "cat": "measured",
                "args": {"iteration": label, "rows": rows},
            }
            start += seconds


def _counters(start: float, span: IterationSpan) -> Iterator[Event]:
    for pid, rows in enumerate(span.rows, start=1):
        yield _counter(pid, start, "rows", rows)
    if span.residual is not None:
        yield _counter(0, start, "residual", span.residual)


def _counter(pid: int, start: float, name: str, value: float) -> Event:
    return {
        "ph": "C", "pid": pid, "ts": _microseconds(start), "name": name, "args": {name: value},
    }  # fmt: skip


def _mark(start: float, name: str) -> Event:
    return {
        "ph": "i", "s": "g", "pid": 0, "tid": 0, "ts": _microseconds(start), "name": name,
        "cat": "measured",
    }  # fmt: skip


def _start_of(history: IterationHistory, iteration: int) -> float:
    """Return when an iteration began, evenly within its span."""
    start = 0.0
    for span in history.spans:
        if iteration <= span.last:
            return start + span.seconds * max(0, iteration - span.first)
        start += span.seconds * span.count
    return start


def _microseconds(seconds: float) -> float:
    return round(seconds * 1e9) / 1000
