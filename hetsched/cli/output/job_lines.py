"""A job's state and parameters as text, for `status` and `show`. Pure: records in, lines out."""

from __future__ import annotations

import time
from collections.abc import Mapping

import msgspec

from hetsched.cli.output.iteration_rows import iteration_progress
from hetsched.cli.output.terminal import clean
from hetsched.job import Done, Failed, JobState, Queued, Running, words
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
            seconds = state.report.seconds
            return "" if seconds is None else format_seconds(seconds)
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


def parameters(params: Mapping[str, object]) -> str:
    """Return e.g. "batch=256x512x512 dtype=complex64"."""
    return clean(" ".join(f"{key}={value}" for key, value in params.items()))


def builtins(record: msgspec.Struct) -> dict[str, object]:
    """Convert a record to plain dicts and lists, for JSON."""
    fields: dict[str, object] = msgspec.to_builtins(record)
    return fields


def _progress(state: Running) -> str:
    if state.iteration is not None and state.stage == "computing":
        return state.text or iteration_progress(state)
    share = sum(device.share for device in state.devices)
    if not share:
        return state.text or state.stage
    return f"{state.stage} {sum(device.done for device in state.devices)}/{share}"
