"""Checks of the options of a job that concern its place in the queue.

The client applies them before it sends a job, and the daemon before it accepts one.
"""

from __future__ import annotations

import math
import re

from hetsched.errors import UsageError
from hetsched.job import Dependency, JobSpec
from hetsched.units import MAX_SECONDS, NUMBER_LIMIT, quoted

MIN_PRIORITY, MAX_PRIORITY = -20, 19
MAX_RETRIES = 100
"""More would hide a job that always fails. Arbitrary."""
MAX_DEPENDENCIES = 100
"""Of one job. Arbitrary."""
MAX_TEXT = 128
"""Characters of a label or an id. Arbitrary: they are columns of tables."""
MAX_DATE = 253402300799.0
"""Seconds since the epoch: the last that a calendar date (year 9999) can show."""

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@/+-]*", re.ASCII)
_CONDITIONS = ("ok", "any", "fail")


def check_queue_options(spec: JobSpec) -> None:
    """Check all options of `spec` that concern the queue.

    Raises
    ------
    UsageError
        With the option, its value and what is allowed.
    """
    check_number("priority", spec.priority, MIN_PRIORITY, MAX_PRIORITY)
    check_number("retries", spec.retries, 0, MAX_RETRIES)
    check_label(spec.label)
    check_id(spec.id)
    if len(spec.after) > MAX_DEPENDENCIES:
        raise UsageError(
            f"after: {len(spec.after)} jobs; the maximum is {MAX_DEPENDENCIES}"
            " (chain them: a job may run after one that itself runs after others)"
        )
    for dependency in spec.after:
        check_number("after: a job", dependency.job, 1, NUMBER_LIMIT - 1)
    check_seconds("timeout", spec.timeout, "seconds", MAX_SECONDS)
    check_seconds("deadline", spec.deadline, "seconds since the epoch", MAX_DATE)


def check_number(name: str, value: int, minimum: int, maximum: int) -> None:
    """Raise UsageError if `value` is out of range."""
    if not minimum <= value <= maximum:
        limit = "2**63-1" if maximum == NUMBER_LIMIT - 1 else str(maximum)
        raise UsageError(f"{name}: {quoted(value)} is out of range ({minimum} to {limit})")


def check_label(label: str) -> None:
    """Raise UsageError for a label that is too long or can't be printed."""
    if len(label) > MAX_TEXT:
        raise UsageError(f"label: {len(label)} characters; the maximum is {MAX_TEXT}")
    if not label.isprintable():
        raise UsageError(f"label: {quoted(label)} has characters that can't be printed")


def check_id(text: str) -> None:
    """Raise UsageError for an id that isn't "" and isn't a plain word."""
    if len(text) > MAX_TEXT:
        raise UsageError(f"id: {len(text)} characters; the maximum is {MAX_TEXT}")
    if text and not _ID.fullmatch(text):
        raise UsageError(
            f"id: {quoted(text)} should be letters, digits and . _ : @ / + -,"
            " starting with a letter or digit"
        )


def check_seconds(name: str, value: float | None, unit: str, maximum: float) -> None:
    """Raise UsageError unless `value` is None, or positive and at most `maximum`."""
    if value is not None and not 0 < value <= maximum:
        problem = (
            "a finite number" if not math.isfinite(value) else f"positive, at most {maximum:g}"
        )
        raise UsageError(f"{name}: {value:g} should be {problem} ({unit})")


def parse_dependency(text: str) -> Dependency:
    """Parse "12", "12:ok", "12:any" or "12:fail". Raises UsageError."""
    number, colon, condition = text.strip().partition(":")
    if not re.fullmatch(r"\d{1,19}", number, re.ASCII) or not 0 < int(number) < NUMBER_LIMIT:
        raise UsageError(
            f"after: {quoted(text)} should be a job number, with or without :ok, :any or :fail"
        )
    match condition:
        case "ok" | "any" | "fail":
            return Dependency(int(number), condition)
        case "" if not colon:
            return Dependency(int(number))
    raise UsageError(
        f"after: {quoted(text)} has an unknown condition; choose from: {', '.join(_CONDITIONS)}"
    )
