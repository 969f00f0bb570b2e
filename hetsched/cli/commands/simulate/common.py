"""What all simulations share: flags, and showing what came out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from hetsched.cli.output.terminal import note, out, out_json, width
from hetsched.text import clean, columns, number
from hetsched.units import MOST

if TYPE_CHECKING:
    from hetsched.simulate.results import Cell, Report

SCHEMA = "hetsched.simulate/1"

Plot = Annotated[str | None, typer.Option(metavar="FILE", help="Draw it, as .png, .svg or .pdf.")]
Seed = Annotated[int, typer.Option(metavar="N", min=0, max=MOST - 1, help="Of what is random.")]


def checked(plot: str | None, force: bool) -> None:
    """Refuse what can't be drawn before anything is computed. Raises as `charts.check`."""
    if plot is not None:
        from hetsched.cli.output.charts import check

        check(plot, force)


def show(report: Report, plot: str | None, force: bool, json: bool) -> None:
    """The picture, if one is asked for, and the tables."""
    if plot is not None:
        from hetsched.cli.output.charts import draw

        draw(report, plot, force)
        note(f"drawn: {plot}")
    if json:
        out_json(as_json(report))
        return
    out(clean(f"{report.experiment}: {report.source}"))
    for table in report.tables:
        out("")
        out(clean(table.title))
        rows = [[_text(cell) for cell in row] for row in table.rows]
        for line in columns(table.columns, rows, left=table.names, width=width()):
            out(line)


def as_json(report: Report) -> dict[str, Any]:
    """Tables with a name for each cell; what isn't known is null."""
    tables = [
        {
            "title": table.title,
            "rows": [dict(zip(table.columns, row, strict=True)) for row in table.rows],
        }
        for table in report.tables
    ]
    return {
        "schema": SCHEMA,
        "experiment": report.experiment,
        "source": report.source,
        "tables": tables,
    }


def _text(cell: Cell) -> str:
    """For people: differences below a ten-thousandth are rounding errors."""
    if isinstance(cell, float):
        return number(round(cell, 4))
    return "-" if cell is None else str(cell)
