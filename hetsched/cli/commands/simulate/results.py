"""Flags and printed results of all simulations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from hetsched.cli.integer_parser import integers
from hetsched.cli.output.terminal import note, out, out_json, width
from hetsched.text import clean, columns, number
from hetsched.units import NUMBER_LIMIT

if TYPE_CHECKING:
    from hetsched.simulate.results import Cell, ExperimentResult

SCHEMA = "hetsched.simulate/1"

Plot = Annotated[
    str | None, typer.Option(metavar="FILE", help="Draw the results (.png, .svg or .pdf).")
]
Seed = Annotated[
    int, typer.Option(metavar="N", parser=integers(0, NUMBER_LIMIT - 1), help="Random seed.")
]


class TableRecord(msgspec.Struct, frozen=True):
    """A table as JSON: a name for each cell; unknown values are null."""

    title: str
    rows: list[dict[str, Cell]]


class ExperimentRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The object that `--json` prints."""

    schema: str = SCHEMA
    experiment: str
    source: str
    tables: list[TableRecord]


def check_plot(plot: str | None, force: bool) -> None:
    """Check before anything is computed whether the plot can be written."""
    if plot is not None:
        from hetsched.cli.output.plots.figure_file import check

        check(plot, force)


def show(result: ExperimentResult, plot: str | None, force: bool, json: bool) -> None:
    """Draw the plot, if one is asked for, and print the tables."""
    if plot is not None:
        from hetsched.cli.output.plots.charts import draw

        draw(result, plot, force)
        note(f"plot: {plot}")
    if json:
        out_json(_record(result))
        return
    out(clean(f"{result.experiment}: {result.source}"))
    for table in result.tables:
        out("")
        out(clean(table.title))
        rows = [[_text(cell) for cell in row] for row in table.rows]
        for line in columns(table.columns, rows, left_columns=table.names, width=width()):
            out(line)


def _record(result: ExperimentResult) -> ExperimentRecord:
    tables = [
        TableRecord(
            table.title, [dict(zip(table.columns, row, strict=True)) for row in table.rows]
        )
        for table in result.tables
    ]
    return ExperimentRecord(experiment=result.experiment, source=result.source, tables=tables)


def _text(cell: Cell) -> str:
    """Format a cell; differences below a ten-thousandth are rounding errors."""
    if isinstance(cell, float):
        return number(round(cell, 4))
    return "-" if cell is None else str(cell)
