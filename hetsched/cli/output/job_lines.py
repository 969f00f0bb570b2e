"""A job's state and parameters as text, for `status` and `show`. Pure: records in, lines out."""

from __future__ import annotations

import time
from collections.abc import Mapping

import msgspec

from hetsched.cli.output.iteration_rows import iteration_progress
from hetsched.cli.output.terminal import clean
from hetsched.job import Done, Ended, Failed, JobReport, JobState, Queued, Running, words
from hetsched.transport.messages import JobLine
from hetsched.units import format_seconds


def word(state: JobState) -> str:
    """Return the state as one word."""
    return words(state)[0]


def detail(state: JobState) -> str:
    """Return the details of a state, in a few words."""
    match state:
        case Queued():
            return f"{state.ahead} ahead"
        case Running():
            return _progress(state)
        case Done():
            return times(state.report)
        case Failed():
            return state.error.message


def event_detail(state: JobState) -> str:
    """Return the details of a state as `follow` prints them, with the reason to wait."""
    if isinstance(state, Queued) and state.reason:
        return f"{state.reason}, {detail(state)}" if state.ahead else state.reason
    return detail(state)


def options(job: JobLine) -> list[str]:
    """Return a line for each option of the queue that was given, such as "label: nightly"."""
    after = ", ".join(f"{earlier.job}:{earlier.condition}" for earlier in job.after)
    values = {
        "label": job.label,
        "id": job.id,
        "priority": str(job.priority or ""),
        "after": after,
        "retries": str(job.retries or ""),
        "timeout": "" if job.timeout is None else format_seconds(job.timeout),
        "deadline": "" if job.deadline is None else _date(job.deadline),
    }
    return [f"{name}: {value}" for name, value in values.items() if value]


def _date(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


def times(report: JobReport) -> str:
    """Return "whole time 36.1 s, kernels' time 342 ms", as far as they are known."""
    known = {"whole time": report.whole_seconds, "kernels' time": report.seconds}
    return ", ".join(f"{k} {format_seconds(v)}" for k, v in known.items() if v is not None)


def whole_time(job: JobLine) -> str:
    """Return the time from a job's turn to its end; "" if it hasn't ended."""
    if not isinstance(job.state, Ended):
        return ""
    seconds = job.state.report.whole_seconds
    if seconds is None and job.started_at is not None and job.ended_at is not None:
        seconds = job.ended_at - job.started_at  # an earlier daemon ran it
    return "" if seconds is None else format_seconds(max(0.0, seconds))


def kernels_time(job: JobLine) -> str:
    """Return the time from the first chunk's start to the last one's end; "" if it has none."""
    seconds = job.state.report.seconds if isinstance(job.state, Ended) else None
    return "" if seconds is None else format_seconds(seconds)


def parameters(params: Mapping[str, object], shapes: Mapping[str, str] | None = None) -> str:
    """Return e.g. "batch=256x512x512 dtype=complex64", or shapes of arrays "A=512x512 float64"."""
    words = [f"{name or 'input'}={shape}" for name, shape in (shapes or {}).items()]
    words += [f"{key}={_value(value)}" for key, value in params.items()]
    return clean(" ".join(words))


def _value(value: object) -> str:
    if isinstance(value, list | tuple) and value and all(type(n) is int for n in value):
        return "x".join(map(str, value))
    return str(value)


def builtins(record: msgspec.Struct) -> dict[str, object]:
    """Convert a record to plain dicts and lists, for JSON: its tag, and fields by default, too."""
    fields = msgspec.structs.asdict(record)
    return {**msgspec.to_builtins(fields), **msgspec.to_builtins(record)}


def _progress(state: Running) -> str:
    if state.iteration is not None and state.stage == "computing":
        return state.text or iteration_progress(state)
    share = sum(device.share for device in state.devices)
    if not share:
        return state.text or state.stage
    return f"{state.stage} {sum(device.done for device in state.devices)}/{share}"
