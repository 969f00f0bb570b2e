"""An explanation as a trace for Perfetto and chrome://tracing, predicted and measured.

The trace event format: complete events ("X"), times in microseconds; a "process" for each device,
a "thread" for each kind of phase, predicted and measured.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from hetsched.device import ChunkTimeline, Timeline
from hetsched.explain.iteration_trace import iteration_events
from hetsched.units import counted

if TYPE_CHECKING:
    from hetsched.explain.records import Explanation

Event = dict[str, Any]
Span = tuple[float, float]
NumberedSpan = tuple[int, tuple[int, int]]
"""Number of a chunk; start and end of one of its phases in nanoseconds."""

KINDS = ("predicted", "measured")
PHASES = (("copy_in", "copy in"), ("compute", "compute"), ("copy_out", "copy out"))
MAX_LANES = 100
"""Thread numbers reserved for each phase: phases of one kind may overlap on some devices."""
MAX_CLOCK_SKEW_NS = 1000
"""Shorter overlaps are artefacts of reading clocks in sequence."""


def trace(explanation: Explanation) -> dict[str, Any]:
    """Return the content of the trace file, to be written as JSON."""
    subject = "a plan" if explanation.job is None else f"job {explanation.job}"
    events: list[Event] = []
    chunked = explanation.devices
    if explanation.iterations is not None:
        events += iteration_events(explanation.iterations)
        chunked = ()
    for pid, device in enumerate(chunked, start=1):
        events += _process_events(pid, device.device)
        lines = (device.plan, device.timeline)
        for number, (kind, line) in enumerate(zip(KINDS, lines, strict=True)):
            if line is not None:
                is_whole = line is device.plan and device.has_only_whole_chunks
                first_tid = number * len(PHASES) * MAX_LANES
                events += _phase_events(pid, first_tid, kind, line, is_whole)
    return {
        "traceEvents": events,
        "displayTimeUnit": "ms",
        "otherData": {
            "schema": "hetsched.trace/1",
            "what": f"{subject}: {explanation.workload}, {explanation.load} units,"
            f" {explanation.state}",
            "notes": "; ".join(explanation.notes),
        },
    }


def _phase_events(
    pid: int, first_tid: int, kind: str, line: Timeline, is_whole: bool
) -> Iterator[Event]:
    for order, (field, phase) in enumerate(PHASES):
        name = "whole" if is_whole else phase
        spans = [(number, getattr(chunk, field)) for number, chunk in enumerate(line.chunks)]
        present = [(number, _nanoseconds(span)) for number, span in spans if span is not None]
        for lane, members in enumerate(lanes(present)):
            tid = first_tid + order * MAX_LANES + lane + 1
            label = f"{kind}: {name}" + (f" ({lane + 1})" if lane else "")
            yield _metadata("thread_name", pid, tid, {"name": label})
            yield _metadata("thread_sort_index", pid, tid, {"sort_index": tid})
            for number, span in members:
                yield _complete_event(pid, tid, kind, name, span, number, line.chunks[number])


def _complete_event(
    pid: int,
    tid: int,
    kind: str,
    phase: str,
    span: tuple[int, int],
    number: int,
    chunk: ChunkTimeline,
) -> Event:
    start, end = span
    by = {"variant": chunk.variant} if chunk.variant else {}
    if chunk.taken:
        by["from"] = "shared tail"
    return {
        "ph": "X",
        "pid": pid,
        "tid": tid,
        "ts": start / 1000,
        "dur": (end - start) / 1000,
        "name": ", ".join([counted(chunk.units, "unit"), *by.values()]),
        "cat": kind,
        "args": {"chunk": number, "units": chunk.units, "phase": phase, **by},
    }


def lanes(spans: Sequence[NumberedSpan]) -> list[list[NumberedSpan]]:
    """Return `spans` on as few lanes as possible, without overlap within a lane."""
    filled: list[list[NumberedSpan]] = []
    for number, (start, end) in sorted(spans, key=lambda numbered: numbered[1]):
        for lane in filled:
            lane_end = lane[-1][1][1]
            if lane_end <= start + MAX_CLOCK_SKEW_NS:
                begin = max(start, lane_end)
                lane.append((number, (begin, max(begin, end))))
                break
        else:
            filled.append([(number, (start, end))])
    return filled


def _nanoseconds(span: Span) -> tuple[int, int]:
    return round(span[0] * 1e9), round(span[1] * 1e9)


def _process_events(pid: int, name: str) -> list[Event]:
    return [
        _metadata("process_name", pid, 0, {"name": name}),
        _metadata("process_sort_index", pid, 0, {"sort_index": pid}),
    ]


def _metadata(name: str, pid: int, tid: int, args: dict[str, Any]) -> Event:
    return {"ph": "M", "name": name, "pid": pid, "tid": tid, "args": args}
