"""What an experiment found, as tables and charts of plain data. Showing them is others' work."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Cell = str | int | float | None
"""None: nothing to say, such as a figure that a paper doesn't give."""


@dataclass(frozen=True)
class Table:
    """Rows under named columns; the first `names` columns say what the row is about."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    names: int = 1


@dataclass(frozen=True)
class Series:
    """(n,) x against (n,) y."""

    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    style: Literal["line", "points", "bars"] = "line"


@dataclass(frozen=True)
class Chart:
    """One panel of a picture.

    Attributes
    ----------
    series : tuple of Series
    log : bool
        Whether the y axis is logarithmic.
    least : float
        The least y that there can be.
    """

    title: str
    x_label: str
    y_label: str
    series: tuple[Series, ...]
    log: bool = False
    least: float = 0.0


@dataclass(frozen=True)
class Report:
    """One experiment: which, after which paper, and what came out."""

    experiment: str
    source: str
    tables: tuple[Table, ...]
    charts: tuple[Chart, ...]
