"""What a caller may say, checked before anything is sent: the daemon drops what it can't decode.

Each raises UsageError (DataError for what is too large): what, the value, what it should be.
NumPy's numbers are taken, but it isn't imported.
"""

from __future__ import annotations

import math
import operator
import os
from collections.abc import Iterable
from typing import Any

from hetsched.errors import DataError, UsageError
from hetsched.units import NUMBER_LIMIT, parse_size, quoted

LONGEST_WAIT = 2e6
"""Seconds: poll(2) counts milliseconds in 31 bits."""

MOST_AXES = 64
"""Of NumPy's arrays."""
LARGEST_ITEM = 32
"""Bytes of NumPy's longest number, clongdouble."""


def integer(name: str, value: Any, least: int, most: int = NUMBER_LIMIT - 1) -> int:
    """`value`, an integer from `least` to `most`; a bool is none."""
    limits = f"an integer from {least} to {_power(most)}"
    try:
        number = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = None
    if number is None:
        raise UsageError(f"{name}: {quoted(value)} should be {limits}")
    if not least <= number <= most:
        raise UsageError(f"{name}: {quoted(number)} should be {limits}")
    return number


def boolean(name: str, value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if str(getattr(value, "dtype", "")) == "bool" and not value.shape:  # NumPy's
        return bool(value)
    raise UsageError(f"{name}: {quoted(value)} should be True or False")


def text(name: str, value: Any, what: str) -> str:
    """`value`, a str that can be sent; `what` says which."""
    if isinstance(value, str) and _encodes(value):
        return str(value)
    raise UsageError(f"{name}: {quoted(value)} should be {what}")


def devices(value: Any) -> tuple[str, ...]:
    """The names in "cpu,gpu0", or in a sequence."""
    what = 'a str like "cpu,gpu0", or a sequence of names'
    if isinstance(value, str):
        return tuple(text("devices", value, what).split(","))
    if not isinstance(value, Iterable):
        raise UsageError(f"devices: {quoted(value)} should be {what}")
    return tuple(text("devices", name, what) for name in value)


def memory_limit(value: Any) -> int | None:
    """Bytes of an int, or of a str like "256MiB"; None: no limit."""
    if value is None:
        return None
    if isinstance(value, str):
        try:
            value = parse_size(value)
        except UsageError as error:
            raise UsageError(f"memory_limit: {error}") from None
    return integer('memory_limit (bytes, or a str like "256MiB")', value, 1)


def extents(shape: Any) -> tuple[int, ...]:
    """`shape`, an int or a sequence of them, as a tuple."""
    if hasattr(shape, "__index__") and not getattr(shape, "shape", ()):
        shape = (integer("shape", shape, 0),)
    if isinstance(shape, str | bytes) or not isinstance(shape, Iterable):
        raise UsageError(f"shape: {quoted(shape)} should be an integer, or a sequence of them")
    found = tuple(integer(f"shape: axis {axis}", n, 0) for axis, n in enumerate(shape))
    if len(found) > MOST_AXES:
        raise UsageError(f"shape: {len(found)} axes; {MOST_AXES} are the most")
    if math.prod(found) >= NUMBER_LIMIT // LARGEST_ITEM:
        raise DataError(f"shape: {quoted(found)} is more than any machine has")
    return found


def endpoint(value: Any) -> str:
    """A runtime folder's path."""
    path = os.fspath(value) if isinstance(value, os.PathLike) else value
    if isinstance(path, str) and "\0" not in path:
        return path
    raise UsageError(f"endpoint: {quoted(value)} should be the path of a runtime folder")


def timeout(value: Any) -> float:
    """Seconds that can be waited for."""
    try:
        seconds = math.nan if isinstance(value, bool | str | bytes) else float(value)
    except (TypeError, ValueError, OverflowError):
        seconds = math.nan
    if 0 < seconds <= LONGEST_WAIT:
        return seconds
    raise UsageError(
        f"timeout: {quoted(value)} should be a number of seconds, above 0 and at most"
        f" {LONGEST_WAIT:.0f}"
    )


def _power(most: int) -> str:
    return "2**63-1" if most == NUMBER_LIMIT - 1 else str(most)


def _encodes(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
