"""The configured cost of an operation of an emulated device or of a machine profile."""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Callable
from typing import TypeVar

import msgspec

from hetsched.errors import ConfigError, HetschedError
from hetsched.units import parse_rate, parse_time

Value = TypeVar("Value")

NO_GAP = "0us"


class Cost(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Cost of one operation: a fixed `gap`, and a `rate` (B/s, flop/s) or a time per `unit`.

    Or a table, `points`: units and time. Linear in between; constant speed outside.
    """

    gap: str = NO_GAP
    rate: str | None = None
    unit: str | None = None
    points: tuple[tuple[float, str], ...] | None = None

    def gap_seconds(self) -> float:
        return parse_time(self.gap)

    def table(self) -> list[tuple[float, float]] | None:
        """Return (units, seconds) of the points; None without a table."""
        if self.points is None:
            return None
        return [(units, parse_time(time)) for units, time in self.points]

    def seconds(self, units: int, bytes_per_unit: float, flops_per_unit: float) -> float:
        """Modelled seconds of one operation on `units`."""
        table = self.table()
        if table is not None:
            return _interpolated(table, units)
        if self.unit is not None:
            return self.gap_seconds() + units * parse_time(self.unit)
        rate, quantity = parse_rate(self.rate or "")
        amount = bytes_per_unit if quantity == "B" else flops_per_unit
        return self.gap_seconds() + units * amount / rate


def _interpolated(table: list[tuple[float, float]], units: float) -> float:
    """Return the seconds at `units`, linear between points, proportional outside them."""
    after = bisect_right(table, units, key=lambda point: point[0])
    if after in (0, len(table)):
        nearest, seconds = table[0 if after == 0 else -1]
        return seconds * units / nearest
    (x, start), (next_x, end) = table[after - 1], table[after]
    return start + (end - start) * (units - x) / (next_x - x)


def check_cost(cost: Cost, location: str, quantity: str) -> None:
    """Check the values of `cost`.

    Parameters
    ----------
    location : str
        File and key, for messages.
    quantity : "B" or "flop"
        What its rate counts.

    Raises
    ------
    ConfigError
        Malformed, or it has not exactly one of `rate`, `unit` and `points`.
    """
    parsed(f"{location}.gap", parse_time, cost.gap)
    if cost.points is not None:
        _check_points(cost, f"{location}.points")
        return
    if (cost.rate is None) == (cost.unit is None):
        raise ConfigError(f"{location}: give either rate or unit, or a table of points")
    parsed(f"{location}.unit", parse_time, cost.unit)
    rate = parsed(f"{location}.rate", parse_rate, cost.rate)
    if rate is not None and rate[1] != quantity:
        raise ConfigError(f"{location}.rate: {cost.rate!r}, must be in {quantity}/s")


def _check_points(cost: Cost, location: str) -> None:
    if (cost.gap, cost.rate, cost.unit) != (NO_GAP, None, None):
        raise ConfigError(f"{location}: a table replaces gap, rate and unit; drop these")
    if not cost.points:
        raise ConfigError(f'{location}: empty; give points like [[1, "100us"], [16, "1.6ms"]]')
    for index, (units, time) in enumerate(cost.points):
        point = f"{location}[{index}]"
        if not 0 < units < float("inf"):
            raise ConfigError(f"{point}: {units:g} units, must be above 0")
        if not parsed(point, parse_time, time):
            raise ConfigError(f"{point}: {time!r}, must be above 0")
    for (units, _), (following, _) in itertools.pairwise(cost.points):
        if following <= units:
            raise ConfigError(
                f"{location}: {following:g} units after {units:g}; sort them, each size once"
            )


def parsed(location: str, parse_value: Callable[[str], Value], text: str | None) -> Value | None:
    """Return the value of `text`; None for None.

    Raises
    ------
    ConfigError
        `text` is malformed.
    """
    if text is None:
        return None
    try:
        return parse_value(text)
    except HetschedError as error:
        raise ConfigError(f"{location}: {error}") from None
