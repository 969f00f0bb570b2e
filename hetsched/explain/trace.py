"""An account as a trace that Perfetto and chrome://tracing show, predicted and real side by side.

The trace event format: complete events ("X"), times in microseconds; a "process" for each device,
a "thread" for each kind of phase, predicted and measured.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from hetsched.device import Timeline
from hetsched.units import counted

if TYPE_CHECKING:
    from hetsched.explain.records import Account

Event = dict[str, Any]
Span = tuple[float, float]

KINDS = ("predicted", "measured")
PHASES = (("copy_in", "copy in"), ("compute", "compute"), ("copy_out", "copy out"))
LANES = 100
"""Numbers of threads that each track may have: phases of one kind may overlap on some devices."""
CLOCKS = 1000
"""Nanoseconds: overlaps that are shorter come of clocks that are read one after the other."""


def trace(account: Account) -> dict[str, Any]:
    """The whole file, to be written as JSON."""
    what = "a plan" if account.job is None else f"job {account.job}"
    events: list[Event] = []
    for pid, one in enumerate(account.devices, start=1):
        events += _process(pid, one.device)
        for number, (kind, line) in enumerate(zip(KINDS, (one.plan, one.timeline), strict=True)):
            if line is not None:
                lumped = line is one.plan and one.lumped
                events += _device(pid, number * len(PHASES) * LANES, kind, line, lumped)
    return {
        "traceEvents": events,
        "displayTimeUnit": "ms",
        "otherData": {
            "schema": "hetsched.trace/1",
            "what": f"{what}: {account.workload}, {account.load} units, {account.state}",
            "notes": "; ".join(account.notes),
        },
    }


def _device(pid: int, base: int, kind: str, line: Timeline, lumped: bool) -> Iterator[Event]:
    for order, (field, phase) in enumerate(PHASES):
        name = "whole" if lumped else phase
        spans = [(n, getattr(chunk, field)) for n, chunk in enumerate(line.chunks)]
        known = [(n, _nanoseconds(span)) for n, span in spans if span is not None]
        for lane, members in enumerate(lanes(known)):
            tid = base + order * LANES + lane + 1
            label = f"{kind}: {name}" + (f" ({lane + 1})" if lane else "")
            yield _meta("thread_name", pid, tid, {"name": label})
            yield _meta("thread_sort_index", pid, tid, {"sort_index": tid})
            for number, (start, end) in members:
                units = line.chunks[number].units
                yield {
                    "ph": "X",
                    "pid": pid,
                    "tid": tid,
                    "ts": start / 1000,
                    "dur": (end - start) / 1000,
                    "name": counted(units, "unit"),
                    "cat": kind,
                    "args": {"chunk": number, "units": units, "phase": name},
                }


def lanes(
    spans: Sequence[tuple[int, tuple[int, int]]],
) -> list[list[tuple[int, tuple[int, int]]]]:
    """Spans (number, nanoseconds) on as few lanes as possible, so that none overlap on one."""
    found: list[list[tuple[int, tuple[int, int]]]] = []
    for number, (start, end) in sorted(spans, key=lambda one: one[1]):
        for lane in found:
            reached = lane[-1][1][1]
            if reached <= start + CLOCKS:
                begin = max(start, reached)
                lane.append((number, (begin, max(begin, end))))
                break
        else:
            found.append([(number, (start, end))])
    return found


def _nanoseconds(span: Span) -> tuple[int, int]:
    return round(span[0] * 1e9), round(span[1] * 1e9)


def _process(pid: int, name: str) -> list[Event]:
    return [
        _meta("process_name", pid, 0, {"name": name}),
        _meta("process_sort_index", pid, 0, {"sort_index": pid}),
    ]


def _meta(name: str, pid: int, tid: int, args: dict[str, Any]) -> Event:
    return {"ph": "M", "name": name, "pid": pid, "tid": tid, "args": args}
