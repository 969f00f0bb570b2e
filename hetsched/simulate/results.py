"""The result of an experiment: tables and charts as plain data, displayed by the CLI."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

Cell = str | int | float | None
"""None: no value, such as a figure that a paper doesn't give."""


@dataclass(frozen=True)
class Table:
    """Rows under named columns; the first `names` columns identify the row."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    names: int = 1

    @classmethod
    def of(cls, title: str, header: str, rows: Iterable[Sequence[Cell]], names: int = 1) -> Table:
        """Make a table of rows under columns that are separated by "; "."""
        return cls(title, tuple(header.split("; ")), tuple(map(tuple, rows)), names)


Style = Literal["line", "points", "bars"]


@dataclass(frozen=True)
class Series:
    """(n,) x against (n,) y."""

    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    style: Style = "line"

    @classmethod
    def of(
        cls, name: str, y: Iterable[float], x: Iterable[float] | None = None, style: Style = "line"
    ) -> Series:
        """Make a series of numbers, without `x` counted from 1."""
        values = tuple(map(float, y))
        numbers = range(1, len(values) + 1) if x is None else x
        return cls(name, tuple(map(float, numbers)), values, style)


@dataclass(frozen=True)
class Chart:
    """One panel of a figure."""

    title: str
    x_label: str
    y_label: str
    series: tuple[Series, ...]
    log: bool = False  # the y axis is logarithmic
    y_min: float = 0.0  # the smallest possible y


@dataclass(frozen=True)
class ExperimentResult:
    """Tables and charts of one experiment, with its source: a paper or a profile."""

    experiment: str
    source: str
    tables: tuple[Table, ...]
    charts: tuple[Chart, ...]
