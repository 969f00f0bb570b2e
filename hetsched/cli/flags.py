"""Flags and arguments that several commands have, and how their values are read."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Sequence
from typing import Annotated, Any, TypeVar

import typer

from hetsched.errors import UsageError, encodable
from hetsched.job import MAX_PRIORITY, MIN_PRIORITY, STATES
from hetsched.paths import new_file, real_path
from hetsched.units import NUMBER_LIMIT, closest_hint, parse_size, parse_time, quoted

T = TypeVar("T")

MAX_DIGITS = 20
"""More digits than any limit has; int() refuses thousands of them with another error."""
MAX_LISTED = 1_000_000  # Jobs that may be listed at once. Arbitrary
_CLOCK = re.compile(r"(\d{1,2}):(\d\d)(?::(\d\d))?", re.ASCII)
_DAY = datetime.timedelta(days=1)


def _parser(read: Callable[[str], T] | None) -> Callable[[object], T] | None:
    """Return `read` for Typer's `parser`, which adds the flag's name to its UsageError."""

    def parse(value: object) -> T:  # a default is no text
        assert read is not None
        try:
            return read(str(value))
        except UsageError as error:
            raise typer.BadParameter(str(error)) from None

    return None if read is None else parse


def option(
    metavar: str, help: str, read: Callable[[str], Any] | None = None, *names: str,
    shown: str | bool = True, values: Sequence[str] = (),
) -> Any:  # fmt: skip
    """Declare a flag with a value.

    `read` makes it of text and raises UsageError; `shown`: whether the help has the default, or
    how; `values`: what a shell offers.
    """
    complete = _completion(metavar, values)
    return typer.Option(
        *names, metavar=metavar, help=help, parser=_parser(read), show_default=shown,
        autocompletion=complete,
    )  # fmt: skip


def switch(help: str, *names: str) -> Any:
    """Declare a flag without a value."""
    return typer.Option(*names, help=help)


def argument(metavar: str, help: str, read: Callable[[str], Any] | None = None) -> Any:
    """Declare an argument; `read` as for `option`."""
    complete = _completion(metavar)
    return typer.Argument(
        metavar=metavar, help=help, parser=_parser(read), autocompletion=complete
    )


def _completion(metavar: str, values: Sequence[str] = ()) -> Callable[[str], list[str]]:
    """Return what completes the last word of a value; without any, a shell completes files."""

    def complete(incomplete: str) -> list[str]:
        before, comma, word = incomplete.rpartition(",")
        known = values
        if "WORKLOAD" in metavar:
            from hetsched.workload import names

            known = names()
        elif "NAME|FILE" in metavar:
            from hetsched.config import shipped

            known = shipped()
        elif "|" in metavar:
            known = metavar.split("|")
        return [f"{before}{comma}{name}" for name in known if name.startswith(word)]

    return complete


def integers(minimum: int, maximum: int) -> Callable[[str], int]:
    """Return a reader of integers from `minimum` to `maximum`.

    Typer's own `min` and `max` print a range such as [0<=x<=9223372036854775807] in the help.
    """

    def read(text: str) -> int:
        digits = text.strip()
        if not re.fullmatch(r"[+-]?\d+", digits, re.ASCII):
            raise UsageError(f"{text!r} is not an integer")
        if len(digits) > MAX_DIGITS or not minimum <= int(digits) <= maximum:
            limit = "2**63-1" if maximum == NUMBER_LIMIT - 1 else maximum
            raise UsageError(f"{digits} is out of range ({minimum} to {limit})")
        return int(digits)

    return read


def numbers(minimum: int = 0) -> Callable[[str], tuple[int, ...]]:
    """Return a reader of "1,2" or "500x4x4"."""
    number = integers(minimum, NUMBER_LIMIT - 1)
    return lambda text: tuple(map(number, text.split("," if "," in text else "x")))


def choice(names: Sequence[str]) -> Callable[[str], str]:

    def read(text: str) -> str:
        if text in names:
            return text
        raise UsageError(f"unknown value {quoted(text)}{closest_hint(text, names)}")

    return read


def words(text: str, names: Sequence[str] = ()) -> tuple[str, ...]:
    """Read "cpu,gpu0"; each word must be one of `names`, if there are any. Raises UsageError."""
    found = tuple(word.strip() for word in text.split(","))
    if not all(found):
        raise UsageError(f"{text!r}: separate names by single commas, e.g. cpu,gpu0")
    for word in found:
        if names and word not in names:
            raise UsageError(f"{word!r}: choose from: {', '.join(names)}")
    return found


def joined(values: Sequence[tuple[str, ...]] | None) -> tuple[str, ...]:
    return tuple(word for each in values or () for word in each)


def text(value: str) -> str:
    """Read text. Raises UsageError for bytes that aren't UTF-8."""
    if value != encodable(value):
        raise UsageError(f"{quoted(value)} should be text in UTF-8")
    return value


def path(value: str) -> str:
    """Read a file's name as an absolute path. Raises UsageError."""
    if not value:
        raise UsageError("the file name is missing")
    return real_path(value)


def array_file(value: str) -> tuple[str, str]:
    """Read "A=a.npy" or "a.npy" as (the array's name or "", absolute path). Raises UsageError."""
    match = re.match(r"([A-Za-z_][\w.]*)=", value, re.ASCII)
    file = value[match.end() :] if match else value
    if not file:
        raise UsageError(f"{value!r}: the file name is missing")
    return (match[1] if match else ""), real_path(file)


def new_array_file(value: str) -> tuple[str, str]:
    """As `array_file`, of a file to be written. Raises UsageError for other formats."""
    name, file = array_file(value)
    return name, new_file(file)


def by_array(flag: str, files: Sequence[tuple[str, str]] | None) -> dict[str, str]:
    """Return array name -> path. Raises UsageError if an array has two files."""
    paths: dict[str, str] = {}
    for name, file in files or ():
        if name in paths:
            problem = f"{name} is given twice" if name else "two files have no array name"
            raise UsageError(f"{flag}: {problem}; give each array one file, as NAME=FILE")
        paths[name] = file
    return paths


def memory(value: str) -> int:
    """Read a size of at least 1 byte. Raises UsageError."""
    size = parse_size(value)
    if size < 1:
        raise UsageError(f"{value}: must be at least 1 byte; omit the flag for no limit")
    return size


def future(value: str, now: datetime.datetime | None = None) -> float:
    """Read a point in time after `now` (with its zone) as seconds since the epoch.

    A duration ("2h"), a time of day, today or tomorrow, or a date with a time in ISO format;
    without a zone in the local one. Raises UsageError.
    """
    return _moment(
        value.strip().removeprefix("+"), now, 1, "examples: 18:30, 2026-11-23T06:00, 2h"
    )


def past(value: str, now: datetime.datetime | None = None) -> float:
    """Read a past point in time: a duration before now, a time of day, a date. As `future`."""
    return _moment(value.strip(), now, -1, "examples: 7d, 18:30, 2026-11-20")


def _moment(value: str, now: datetime.datetime | None, direction: int, examples: str) -> float:
    """Return the next (`direction` 1) or last (-1) point in time that `value` describes."""
    now = now or datetime.datetime.now().astimezone()
    try:
        if clock := _CLOCK.fullmatch(value):
            hour, minute, second = (int(part or 0) for part in clock.groups())
            moment = now.replace(hour=hour, minute=minute, second=second, microsecond=0)
            if moment <= now if direction > 0 else moment > now:
                moment += direction * _DAY
        else:
            try:
                moment = now + direction * datetime.timedelta(seconds=parse_time(value))
            except UsageError:
                moment = datetime.datetime.fromisoformat(value).astimezone(now.tzinfo)
    except (ValueError, OverflowError):
        raise UsageError(f"{quoted(value)} is not a time; {examples}") from None
    if direction > 0 and moment <= now:
        raise UsageError(f"{quoted(value)}: that is in the past; {examples}")
    return moment.timestamp()


PRIORITY_HELP = f"{MIN_PRIORITY} to {MAX_PRIORITY}; larger runs first."
priority = integers(MIN_PRIORITY, MAX_PRIORITY)
job_number = integers(0, NUMBER_LIMIT - 1)
seed = integers(0, NUMBER_LIMIT - 1)

Json = Annotated[bool, switch("Print one JSON object on one line.", "--json")]
Force = Annotated[bool, switch("Replace existing files.", "--force")]
ConfigName = Annotated[
    str | None, option("NAME|FILE", "A shipped configuration or a .toml file.", None, "--config")
]
Cluster = Annotated[str | None, option("ADDRESS", "The hosts of a Dask cluster, tls://HOST:PORT.")]
Insecure = Annotated[bool, switch("Let --cluster be tcp:// to another machine.", "--insecure")]
Trace = Annotated[str | None, option("FILE", "Write a trace for Perfetto or chrome://tracing.")]
Plot = Annotated[str | None, option("FILE", "Draw a picture (.png, .svg or .pdf).")]
JobNumber = Annotated[int, argument("ID", "Job number.", job_number)]
JobNumbers = Annotated[list[int], argument("ID...", "Job numbers.", job_number)]
SomeJobNumbers = Annotated[list[int] | None, argument("[ID...]", "Job numbers.", job_number)]


def states(names: Sequence[str]) -> Any:
    """Declare the flag that selects jobs in some of the states `names`."""
    help = f"Only jobs that are {', '.join(names)}."
    return option(
        "A,B", help, lambda text: words(text, names), "--state", "-s", "-t", values=names
    )


States = Annotated[list[Any] | None, states(STATES)]
Newest = Annotated[int | None, option("N", "The newest N.", integers(1, MAX_LISTED), "-n")]
