"""Parses and formats sizes, times, rates and extents.

K, M, G, T are powers of 1000 in ``GB`` and ``Gflop``, of 1024 in ``GiB`` and in a bare ``4G``.
"""

from __future__ import annotations

import difflib
import functools
import math
import re
import reprlib
from collections.abc import Iterable, Sequence
from typing import Any

from hetsched.errors import UsageError

NUMBER_LIMIT = 2**63
"""Sizes and numbers are below it: they are sent as signed 64-bit integers."""
MAX_SECONDS = 1e9
"""A duration that all clocks and waits can handle."""

MAX_COMPARED = 60
"""Characters of a wrong word that are compared with names: a long one would take seconds."""

MAX_EXTENT_LENGTH = 100
"""Characters of an extent: more than any size in memory needs, fewer than int() refuses."""
_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 80

_POWER = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
_NUMBER = r"(\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)"
_SIZE = re.compile(rf"^{_NUMBER}\s*([kmgt]?)(i?b?)$", re.IGNORECASE | re.ASCII)
_TIME = re.compile(rf"^{_NUMBER}\s*(ns|us|ms|s|min|m|h|d)?$", re.ASCII)
_RATE = re.compile(rf"^{_NUMBER}\s*([kmgt]?)(i?)(b|flop)/s$", re.IGNORECASE | re.ASCII)
_SECONDS = {
    "ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0,
    "min": 60.0, "m": 60.0, "h": 3600.0, "d": 86400.0,
}  # fmt: skip


def parse_size(text: str) -> int:
    """Parse "64MiB", "1.5GB", "4G" or "4096" as bytes. Raises UsageError."""
    match = _SIZE.match(text.strip())
    if not match:
        raise UsageError(f"{quoted(text)} is not a size; examples: 64MiB, 1.5GB, 4096")
    number, prefix, suffix = match.groups()
    base = 1000 if suffix.lower() == "b" and prefix else 1024
    scale: int = base ** _POWER[prefix.lower()]
    size = float(number) * scale
    if size >= NUMBER_LIMIT:
        raise UsageError(
            f"{quoted(text)} is more than any machine has; examples: 64MiB, 1.5GB, 4096"
        )
    return round(size)


def parse_time(text: str) -> float:
    """Parse "30us", "4 ms", "10m" or "2" as seconds. Raises UsageError."""
    match = _TIME.match(text.strip())
    if not match:
        raise UsageError(f"{text!r} is not a time; examples: 30us, 4ms, 10s, 5m")
    seconds = float(match[1]) * _SECONDS[match[2] or "s"]
    if seconds > MAX_SECONDS:
        raise UsageError(f"{text!r} is more than 30 years; examples: 30us, 4ms, 10s, 5m")
    return seconds


def parse_rate(text: str) -> tuple[float, str]:
    """Parse "1GB/s" as (1e9, "B"), "6Gflop/s" as (6e9, "flop"). Raises UsageError."""
    match = _RATE.match(text.strip())
    if not match:
        raise UsageError(f"{text!r} is not a rate; examples: 1GB/s, 6Gflop/s")
    number, prefix, binary, quantity = match.groups()
    base = 1024 if binary else 1000
    rate = float(number) * base ** _POWER[prefix.lower()]
    if not 0 < rate < math.inf:
        raise UsageError(f"{text!r}: a rate must be positive and finite")
    return rate, "B" if quantity.lower() == "b" else "flop"


@functools.lru_cache(maxsize=256)
def parse_extent(text: str, names: tuple[str, ...]) -> tuple[int, ...]:
    """Parse "256x512x512" into one integer >= 1 for each of `names` ("COUNT", "ROWS", "COLS").

    Raises UsageError with the first part that isn't a positive integer in ASCII digits.
    """
    form = "x".join(names)
    example = "x".join(["256", "512", "512", "512"][: len(names)])
    parts = text.split("x")
    if len(text) > MAX_EXTENT_LENGTH:
        raise UsageError(f"{quoted(text)} has {len(text)} characters; example: {example}")
    if len(parts) != len(names):
        raise UsageError(f"{text!r}: needs {form}, got {len(parts)} numbers; example: {example}")
    column = 1
    for part, name in zip(parts, names, strict=True):
        if not re.fullmatch(r"\d+", part, re.ASCII):
            hint = part.translate(str.maketrans("OolI", "0011"))
            is_guess = hint != part and hint.isascii() and hint.isdigit()
            guess = f"; did you mean {hint}?" if is_guess else ""
            raise UsageError(f"{text!r}: {part!r} is not a number (column {column}){guess}")
        if int(part) == 0:
            raise UsageError(f"{text!r}: {name} must be at least 1")
        column += len(part) + 1
    return tuple(int(part) for part in parts)


def quoted(value: Any) -> str:
    """Quote `value` for a message: its repr on one line, a long one without its middle."""
    if isinstance(value, int) and not -NUMBER_LIMIT <= value < NUMBER_LIMIT:
        return f"a number of {value.bit_length()} bits"  # repr refuses very long numbers
    return " ".join(_SHORT.repr(value).split())


def closest_name(word: object, names: Iterable[str]) -> str | None:
    """Return the name most like `word`; None if none is. Only the start of a long text counts."""
    matches = difflib.get_close_matches(str(word)[:MAX_COMPARED], list(names), n=1)
    return matches[0] if matches else None


def closest_hint(word: object, names: Sequence[str]) -> str:
    """Return "; did you mean 'status'?", or the list of all names if none is similar."""
    match = closest_name(word, names)
    return f"; did you mean {match!r}?" if match else f"; choose from: {', '.join(names)}"


def counted(number: int, noun: str) -> str:
    """Format "1 run", "3 runs": for nouns whose plural ends in s."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def format_bytes(count: float) -> str:
    """Format bytes: "512 MiB"."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{_digits(count)} {unit}"
        count /= 1024
    return f"{_digits(count)} TiB"


LONG = ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s"))
"""Seconds of a unit, its name, and those of the next smaller one."""


def format_seconds(seconds: float) -> str:
    """Format seconds: "3 d 4 h", "2 min 5 s", "1.23 s", "21.6 ms", "85 us"."""
    for size, unit, part, name in LONG:
        if seconds >= size:
            count, rest = divmod(round(seconds / part), size // part)
            return f"{count} {unit} {rest} {name}" if rest else f"{count} {unit}"
    for factor, unit in ((1.0, "s"), (1e3, "ms")):
        if seconds * factor >= 1:
            return f"{_digits(seconds * factor)} {unit}"
    return f"{_digits(seconds * 1e6)} us"


def _digits(value: float) -> str:
    """Format with three significant digits, or all before the point; never an exponent."""
    return f"{value:.3g}" if 1e-4 <= abs(value) < 999.5 else f"{value:.0f}"


# ---- ranges of units

Ranges = tuple[tuple[int, int], ...]
"""Units [first, end), ascending, apart from each other."""


def merged(ranges: Iterable[tuple[int, int]]) -> Ranges:
    result: list[tuple[int, int]] = []
    for first, end in sorted(ranges):
        if result and first <= result[-1][1]:
            result[-1] = (result[-1][0], max(end, result[-1][1]))
        elif first < end:
            result.append((first, end))
    return tuple(result)


def common(ranges: Sequence[Ranges]) -> Ranges:
    result = ranges[0] if ranges else ()
    for other in ranges[1:]:
        result = merged((max(a, c), min(b, d)) for a, b in result for c, d in other)
    return result


def without(first: int, end: int, finished: Ranges) -> list[tuple[int, int]]:
    remaining = []
    for begin, stop in finished:
        if stop <= first or begin >= end:
            continue
        if begin > first:
            remaining.append((first, begin))
        first = stop
    return [*remaining, (first, end)] if first < end else remaining
