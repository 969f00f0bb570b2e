"""Converts the arguments of `submit` that concern the queue to fields of a JobSpec."""

from __future__ import annotations

import datetime
import math
import time
from collections.abc import Iterable
from typing import Any

from hetsched.client import validation
from hetsched.client.job import Job
from hetsched.errors import UsageError
from hetsched.job import Dependency
from hetsched.queue_options import (
    MAX_PRIORITY,
    MAX_RETRIES,
    MIN_PRIORITY,
    check_id,
    check_label,
    parse_dependency,
)
from hetsched.units import MAX_SECONDS, NUMBER_LIMIT, parse_time, quoted

Earlier = int | str | Job | Dependency
"""A job to run after: its number, "12:any", its Future, or a Dependency."""


def queue_fields(
    priority: Any,
    label: Any,
    id: Any,
    after: Any,
    retries: Any,
    timeout: Any,
    deadline: Any,
    hold: Any,
) -> dict[str, Any]:
    """Return the fields of a JobSpec by name. Raises UsageError for a wrong type or value."""
    name, ident = validation.text("label", label, "text"), validation.text("id", id, "text")
    check_label(name)
    check_id(ident)
    return {
        "priority": validation.integer("priority", priority, MIN_PRIORITY, MAX_PRIORITY),
        "label": name,
        "id": ident,
        "after": tuple(_dependency(earlier) for earlier in _sequence(after)),
        "retries": validation.integer("retries", retries, 0, MAX_RETRIES),
        "timeout": _timeout(timeout),
        "deadline": _deadline(deadline),
        "hold": validation.boolean("hold", hold),
    }


def _sequence(after: Any) -> Iterable[Any]:
    if isinstance(after, int | str | Job | Dependency):
        return (after,)
    if not isinstance(after, Iterable):
        raise UsageError(
            f"after: {quoted(after)} should be a job or its number, or a sequence of them"
        )
    return after


def _dependency(earlier: Any) -> Dependency:
    if isinstance(earlier, Dependency):
        return earlier
    if isinstance(earlier, Job):
        return Dependency(earlier.id)
    if isinstance(earlier, str):
        return parse_dependency(earlier)
    return Dependency(validation.integer("after: a job", earlier, 1, NUMBER_LIMIT - 1))


def _timeout(value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, str):
        try:
            value = parse_time(value)
        except UsageError as error:
            raise UsageError(f"timeout: {error}") from None
    return _seconds("timeout", value, 'seconds above 0, or a str like "10m"', 0.0, MAX_SECONDS)


def _deadline(value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, datetime.datetime):
        value = value.timestamp()
    now = time.time()
    expected = "a datetime or seconds since the epoch, in the future"
    return _seconds("deadline", value, expected, now, now + MAX_SECONDS)


def _seconds(name: str, value: Any, expected: str, above: float, maximum: float) -> float:
    """Return `value` as a float; the bounds also exclude NaN."""
    try:
        seconds = math.nan if isinstance(value, bool | str | bytes) else float(value)
    except (TypeError, ValueError, OverflowError):
        seconds = math.nan
    if above < seconds <= maximum:
        return seconds
    raise UsageError(f"{name}: {quoted(value)} should be {expected}")
