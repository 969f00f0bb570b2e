"""The result of an experiment: tables as plain data."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

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


@dataclass(frozen=True)
class ExperimentResult:
    """Tables of one experiment, with its source: a paper or a profile."""

    experiment: str
    source: str
    tables: tuple[Table, ...]
