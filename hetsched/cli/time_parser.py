"""Points in time on the command line: "18:30", "2026-11-23T06:00", "in 2h", "2h ago". Pure."""

from __future__ import annotations

import datetime
import re

from hetsched.errors import UsageError
from hetsched.units import parse_time, quoted

EXAMPLES = "examples: 18:30, 2026-11-23T06:00, 2h"
_CLOCK = re.compile(r"(\d{1,2}):(\d\d)(?::(\d\d))?", re.ASCII)


def parse_deadline(text: str, now: datetime.datetime) -> float:
    """Return a future point in time in seconds since the epoch.

    Parameters
    ----------
    text : str
        A duration from now ("2h", "90m"), a time of day, today or tomorrow ("18:30"), or a date
        with a time in ISO format; without a zone in the local one.
    now : datetime, with its zone

    Raises
    ------
    UsageError
        Malformed, or not in the future.
    """
    text = text.strip()
    clock = _CLOCK.fullmatch(text)
    if clock:
        moment = _time_of_day(text, clock, now, "--deadline")
        if moment <= now:
            moment += datetime.timedelta(days=1)
        return moment.timestamp()
    seconds = _duration(text)
    if seconds is not None:
        return now.timestamp() + seconds
    moment = _date(text, now)
    if moment <= now:
        raise UsageError(f"--deadline {quoted(text)}: that is in the past; {EXAMPLES}")
    return moment.timestamp()


def parse_since(text: str, now: datetime.datetime, flag: str) -> float:
    """Return a past point in time: a duration before now, a time of day, a date. See above."""
    text = text.strip()
    clock = _CLOCK.fullmatch(text)
    if clock:
        moment = _time_of_day(text, clock, now, flag)
        if moment > now:
            moment -= datetime.timedelta(days=1)
        return moment.timestamp()
    seconds = _duration(text)
    if seconds is not None:
        return now.timestamp() - seconds
    try:
        return _date(text, now).timestamp()
    except UsageError:
        raise UsageError(
            f"{flag} {quoted(text)} is not a time; examples: 7d, 18:30, 2026-11-20"
        ) from None


def _duration(text: str) -> float | None:
    try:
        seconds = parse_time(text.removeprefix("+"))
    except UsageError:
        return None
    return seconds if seconds > 0 else None


def _time_of_day(
    text: str, clock: re.Match[str], now: datetime.datetime, flag: str
) -> datetime.datetime:
    hour, minute, second = (int(part or 0) for part in clock.groups())
    try:
        return now.replace(hour=hour, minute=minute, second=second, microsecond=0)
    except ValueError:
        raise UsageError(f"{flag} {quoted(text)} is not a time of day; {EXAMPLES}") from None


def _date(text: str, now: datetime.datetime) -> datetime.datetime:
    try:
        moment = datetime.datetime.fromisoformat(text)
        return moment if moment.tzinfo else moment.astimezone()
    except (ValueError, OverflowError):
        raise UsageError(f"--deadline {quoted(text)} is not a time; {EXAMPLES}") from None
