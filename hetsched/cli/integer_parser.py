"""Whole numbers on the command line, with their limits.

Typer's own `min` and `max` print a range such as [0<=x<=9223372036854775807] in the help.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import typer

MAX_DIGITS = 20
"""More digits than any limit has; int() refuses thousands of them with another error."""


def integers(minimum: int, maximum: int) -> Callable[[str | int], int]:
    """Return a parser of integers from `minimum` to `maximum`, for Typer's `parser`."""

    def parse(text: str | int) -> int:
        digits = str(text).strip()
        if not re.fullmatch(r"[+-]?\d+", digits, re.ASCII):
            raise typer.BadParameter(f"{text!r} is not an integer")
        if len(digits) > MAX_DIGITS or not minimum <= int(digits) <= maximum:
            limits = f"{minimum} to {_power(maximum)}"
            raise typer.BadParameter(f"{digits} is out of range ({limits})")
        return int(digits)

    return parse


def _power(number: int) -> str:
    return "2**63-1" if number == 2**63 - 1 else str(number)
