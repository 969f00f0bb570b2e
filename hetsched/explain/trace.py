"""An explanation as a trace for Perfetto and chrome://tracing, predicted and measured.

The trace event format: complete events ("X"), times in microseconds; a "process" for each device,
a "thread" for each kind of phase, predicted and measured. An iterative job has one thread for each
device; moves of rows and checkpoints are marks, the residual and the rows are counters.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from hetsched.explain.records import PHASES
from hetsched.units import counted

if TYPE_CHECKING:
    from hetsched.device import Timeline
    from hetsched.explain.records import Explanation, IterationHistory

Event = dict[str, Any]
NumberedSpan = tuple[int, tuple[int, int]]
"""Number of a chunk; start and end of one of its phases in nanoseconds."""

DRAWN_PHASES = ("save", "transfer", "compute", "wait", "converge")
"""In the order in which they are drawn; the record has no order within an iteration."""
MAX_LANES = 100
"""Thread numbers reserved for each phase: phases of one kind may overlap on some devices."""


def trace(explanation: Explanation) -> dict[str, Any]:
    """Return the content of the trace file, to be written as JSON."""
    subject = "a plan" if explanation.job is None else f"job {explanation.job}"
    if explanation.iterations is None:
        events = list(_chunk_events(explanation))
    else:
        events = list(_iteration_events(explanation.iterations))
    return {
        "traceEvents": events,
        "displayTimeUnit": "ms",
        "otherData": {
            "schema": "hetsched.trace/1",
            "what": f"{subject}: {explanation.workload}, {counted(explanation.load, 'unit')},"
            f" {explanation.state}",
            "notes": "; ".join(explanation.notes),
        },
    }


def _metadata(name: str, pid: int, tid: int, args: dict[str, Any]) -> Event:
    return {"ph": "M", "name": name, "pid": pid, "tid": tid, "args": args}


def _complete(
    pid: int, tid: int, ts: float, dur: float, name: str, kind: str, args: dict[str, Any]
) -> Event:
    """`ts`, `dur`: microseconds."""
    return {
        "ph": "X", "pid": pid, "tid": tid, "ts": ts, "dur": dur, "name": name, "cat": kind,
        "args": args,
    }  # fmt: skip


# ---- chunks


def _chunk_events(explanation: Explanation) -> Iterator[Event]:
    for pid, device in enumerate(explanation.devices, start=1):
        yield _metadata("process_name", pid, 0, {"name": device.device})
        yield _metadata("process_sort_index", pid, 0, {"sort_index": pid})
        lines = {"predicted": device.plan, "measured": device.timeline}
        for number, (kind, line) in enumerate(lines.items()):
            if line is not None:
                is_whole = line is device.plan and device.has_only_whole_chunks
                first_tid = number * len(PHASES) * MAX_LANES
                yield from _phase_events(pid, first_tid, kind, line, is_whole)


def _phase_events(
    pid: int, first_tid: int, kind: str, line: Timeline, is_whole: bool
) -> Iterator[Event]:
    for order, (field, phase) in enumerate(PHASES):
        name = "whole" if is_whole else phase
        spans = [(number, getattr(chunk, field)) for number, chunk in enumerate(line.chunks)]
        present = [
            (number, (round(span[0] * 1e9), round(span[1] * 1e9)))
            for number, span in spans
            if span is not None
        ]
        for lane, members in enumerate(lanes(present)):
            tid = first_tid + order * MAX_LANES + lane + 1
            label = f"{kind}: {name}" + (f" ({lane + 1})" if lane else "")
            yield _metadata("thread_name", pid, tid, {"name": label})
            yield _metadata("thread_sort_index", pid, tid, {"sort_index": tid})
            for number, (start, end) in members:
                chunk = line.chunks[number]
                by = {"variant": chunk.variant} if chunk.variant else {}
                if chunk.taken:
                    by["from"] = "shared tail"
                title = ", ".join([counted(chunk.units, "unit"), *by.values()])
                args = {"chunk": number, "units": chunk.units, "phase": name, **by}
                yield _complete(pid, tid, start / 1000, (end - start) / 1000, title, kind, args)


def lanes(spans: Sequence[NumberedSpan]) -> list[list[NumberedSpan]]:
    """Return `spans` on as few lanes as possible, without overlap within a lane."""
    filled: list[list[NumberedSpan]] = []
    for number, (start, end) in sorted(spans, key=lambda numbered: numbered[1]):
        for lane in filled:
            lane_end = lane[-1][1][1]
            if lane_end <= start + 1000:  # clocks are read in sequence
                begin = max(start, lane_end)
                lane.append((number, (begin, max(begin, end))))
                break
        else:
            filled.append([(number, (start, end))])
    return filled


# ---- iterations


def _iteration_events(history: IterationHistory) -> Iterator[Event]:
    for pid, device in enumerate(history.devices, start=1):
        yield _metadata("process_name", pid, 0, {"name": device})
        yield _metadata("thread_name", pid, 1, {"name": "iterations"})
    start = 0.0
    for span in history.spans:
        for pid, rows in enumerate(span.rows, start=1):
            label = str(span.first) if span.count == 1 else f"{span.first}-{span.last}"
            args, begin = {"iteration": label, "rows": rows}, start
            for phase in DRAWN_PHASES:
                seconds = getattr(span, phase)[pid - 1] * span.count
                if seconds > 0:
                    ts, dur = _microseconds(begin), _microseconds(seconds)
                    yield _complete(pid, 1, ts, dur, phase, "measured", args)
                    begin += seconds
            yield _counter(pid, start, "rows", rows)
        if span.residual is not None:
            yield _counter(0, start, "residual", span.residual)
        start += span.seconds * span.count
    for move in history.moves:
        reason = f": {move.reason}" if move.reason else ""
        name = f"{counted(move.moved, 'row')} moved{reason}"
        yield _mark(_start_of(history, move.after + 1), name)
    for checkpoint in history.checkpoints:
        yield _mark(_start_of(history, checkpoint.iteration + 1), "checkpoint")


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
