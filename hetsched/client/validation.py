"""Checks of a caller's arguments before anything is sent: the daemon drops what it can't decode.

Each function raises UsageError (DataError for values that are too large) with the name, the value
and what is allowed. NumPy's numbers are accepted without importing NumPy.
"""

from __future__ import annotations

import math
import operator
import os
from collections.abc import Iterable
from typing import Any

from hetsched.errors import DataError, UsageError
from hetsched.units import NUMBER_LIMIT, parse_size, parse_time, quoted

MAX_TIMEOUT = 2e6
"""Seconds: poll(2) counts milliseconds in 31 bits."""

RECONNECT_SECONDS = 60.0
"""How long clients look for the next daemon by default. Arbitrary."""

MAX_AXES = 64
"""NumPy's limit on the axes of an array."""
MAX_ITEM_BYTES = 32
"""Bytes of NumPy's largest number, clongdouble."""


def integer(name: str, value: Any, minimum: int, maximum: int = NUMBER_LIMIT - 1) -> int:
    """Return `value` as an int from `minimum` to `maximum`; a bool isn't accepted."""
    try:
        number = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = None
    if number is not None and minimum <= number <= maximum:
        return number
    given = quoted(value if number is None else number)
    raise UsageError(f"{name}: {given} should be an integer from {minimum} to {_power(maximum)}")


def boolean(name: str, value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if str(getattr(value, "dtype", "")) == "bool" and not value.shape:  # NumPy's
        return bool(value)
    raise UsageError(f"{name}: {quoted(value)} should be True or False")


def text(name: str, value: Any, expected: str) -> str:
    """Return `value`, a str that UTF-8 can encode; `expected` describes it in the error."""
    if isinstance(value, str) and (value.isascii() or _encodes(value)):
        return str(value)
    raise UsageError(f"{name}: {quoted(value)} should be {expected}")


def devices(value: Any) -> tuple[str, ...]:
    """Return the names in "cpu,gpu0", or in a sequence."""
    if isinstance(value, tuple) and not value:
        return ()
    expected = 'a str like "cpu,gpu0", or a sequence of names'
    if isinstance(value, str):
        return tuple(text("devices", value, expected).split(","))
    if not isinstance(value, Iterable):
        raise UsageError(f"devices: {quoted(value)} should be {expected}")
    return tuple(text("devices", name, expected) for name in value)


def memory_limit(value: Any) -> int | None:
    """Return bytes from an int or a str like "256MiB"; None: no limit."""
    if value is None:
        return None
    if isinstance(value, str):
        try:
            value = parse_size(value)
        except UsageError as error:
            raise UsageError(f"memory_limit: {error}") from None
    return integer('memory_limit (bytes, or a str like "256MiB")', value, 1)


def extents(shape: Any) -> tuple[int, ...]:
    """Return `shape`, an int or a sequence of ints, as a tuple."""
    if hasattr(shape, "__index__") and not getattr(shape, "shape", ()):
        shape = (integer("shape", shape, 0),)
    if isinstance(shape, str | bytes) or not isinstance(shape, Iterable):
        raise UsageError(f"shape: {quoted(shape)} should be an integer, or a sequence of them")
    extents = tuple(integer(f"shape: axis {axis}", n, 0) for axis, n in enumerate(shape))
    if len(extents) > MAX_AXES:
        raise UsageError(f"shape: {len(extents)} axes; the maximum is {MAX_AXES}")
    if math.prod(extents) >= NUMBER_LIMIT // MAX_ITEM_BYTES:
        raise DataError(f"shape: {quoted(extents)} is more than any machine has")
    return extents


def endpoint(value: Any) -> str:
    """Return the path of a runtime folder."""
    path = os.fspath(value) if isinstance(value, os.PathLike) else value
    if isinstance(path, str) and "\0" not in path:
        return path
    raise UsageError(f"endpoint: {quoted(value)} should be the path of a runtime folder")


def timeout(value: Any) -> float:
    """Return a timeout in seconds."""
    try:
        seconds = math.nan if isinstance(value, bool | str | bytes) else float(value)
    except (TypeError, ValueError, OverflowError):
        seconds = math.nan
    if 0 < seconds <= MAX_TIMEOUT:
        return seconds
    raise UsageError(
        f"timeout: {quoted(value)} should be a number of seconds, above 0 and at most"
        f" {MAX_TIMEOUT:.0f}"
    )


def reconnect(value: Any, variable: str | None) -> float:
    """Return how long to reconnect, in seconds: from the argument, else from the environment."""
    if value is None and variable:
        try:
            return min(parse_time(variable), MAX_TIMEOUT)
        except UsageError as error:
            raise UsageError(f"HETSCHED_RECONNECT: {error}") from None
    if value is None:
        return RECONNECT_SECONDS
    if not isinstance(value, bool) and value == 0:
        return 0.0
    try:
        return timeout(value)
    except UsageError:
        raise UsageError(
            f"reconnect: {quoted(value)} should be a number of seconds from 0 to {MAX_TIMEOUT:.0f}"
        ) from None


def _power(number: int) -> str:
    return "2**63-1" if number == NUMBER_LIMIT - 1 else str(number)


def _encodes(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
