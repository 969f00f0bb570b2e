"""Jobs as text and as JSON, for `status` and `show`. Pure: records in, lines out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from hetsched.cli.output.terminal import clean
from hetsched.job import Done, Failed, JobState, Queued, Running
from hetsched.units import format_seconds

CANCELLED = 130


def word(state: JobState) -> str:
    """The state in one word."""
    match state:
        case Queued():
            return "queued"
        case Running():
            return "running"
        case Done():
            return "done"
        case Failed():
            return "cancelled" if state.error.code == CANCELLED else "failed"


def detail(state: JobState) -> str:
    """What is worth knowing about the state, in a few words."""
    match state:
        case Queued():
            return f"{state.ahead} before it"
        case Running():
            return _progress(state)
        case Done():
            seconds = state.report.seconds
            return "" if seconds is None else format_seconds(seconds)
        case Failed():
            return state.error.message


def parameters(params: Mapping[str, Any]) -> str:
    """ "batch=256x512x512 dtype=complex64"."""
    return clean(" ".join(f"{key}={value}" for key, value in params.items()))


def builtins(record: Any) -> Any:
    """A record as plain dicts and lists, for JSON."""
    return msgspec.to_builtins(record)


def _progress(state: Running) -> str:
    share = sum(device.share for device in state.devices)
    if not share:
        return state.text or state.stage
    return f"{state.stage} {sum(device.done for device in state.devices)}/{share}"
