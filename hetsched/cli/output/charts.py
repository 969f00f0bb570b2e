"""Pictures of a simulation's charts, one panel each. matplotlib is the extra `plot`."""

from __future__ import annotations

import io
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hetsched.cli.commands.models.picture import COLOURS, FAINT, FORMATS, GRID, INK
from hetsched.errors import CantCreate, Unavailable, UsageError

if TYPE_CHECKING:
    from hetsched.simulate.results import Chart, Report, Series

MOST_COLUMNS = 2
FEW = 30
"""Points of a line up to which each is marked."""
DASHES = ("-", (0, (4, 2)), (0, (1, 1.5)), (0, (6, 2, 1, 2)), (0, (2, 3)))
"""So that lines that lie on each other can all be seen."""


def check(file: str, force: bool) -> None:
    """Whether a picture can become `file`, as far as that is known before it is drawn.

    Raises
    ------
    UsageError
        No such format.
    Unavailable
        matplotlib isn't installed.
    CantCreate
        There is such a file, it is a folder, or its folder isn't there.
    """
    if _format(file) not in FORMATS:
        known = ", ".join(f".{name}" for name in FORMATS)
        raise UsageError(f"--plot {file}: the name must end in one of {known}")
    _figure_kind()
    path = Path(file)
    if path.is_dir():
        raise CantCreate(f"{file}: is a directory; give the name of a file")
    if path.exists() and not force:
        raise CantCreate(f"{file}: exists; give another name, or replace it with --force")
    if not path.absolute().parent.is_dir():
        raise CantCreate(f"{file}: there is no folder {path.absolute().parent}; make it first")


def draw(report: Report, file: str, force: bool) -> None:
    """Draw all charts of `report` into `file`. Raises as `check`, and IOFailure."""
    from hetsched.store.array_files import write_whole

    check(file, force)
    raw = io.BytesIO()
    _figure(report).savefig(raw, format=_format(file), dpi=150)
    write_whole(file, raw.getvalue(), force)


def _format(file: str) -> str:
    return Path(file).suffix.lower().lstrip(".")


def _figure_kind() -> Any:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise Unavailable(
            "--plot needs matplotlib, which isn't installed: pip install 'hetsched[plot]'"
        ) from None
    return Figure


def _figure(report: Report) -> Any:
    charts = report.charts
    across = min(MOST_COLUMNS, len(charts))
    down = math.ceil(len(charts) / across)
    figure = _figure_kind()(figsize=(6.6 * across, 3.7 * down + 0.5), layout="constrained")
    figure.suptitle(report.source, fontsize=11, color=INK)
    for place, chart in enumerate(charts, start=1):
        _panel(figure.add_subplot(down, across, place), chart)
    return figure


def _panel(axes: Any, chart: Chart) -> None:
    bars = [series for series in chart.series if series.style == "bars"]
    looks: dict[str, tuple[str, Any]] = {}
    for series in chart.series:
        # Points look like the line that they lie on, and share its name in the legend.
        name = series.name.removesuffix(" measured")
        label = None if name in looks else name
        order = len(looks)
        dashes = DASHES[order % len(DASHES)]
        colour, dashes = looks.setdefault(name, (COLOURS[order % len(COLOURS)], dashes))
        if series.style == "bars":
            _bars(axes, series, bars.index(series), len(bars), colour)
        elif series.style == "points":
            axes.plot(series.x, series.y, "o", color=colour, markersize=4.5, label=label)
        else:
            marker = "o" if len(series.x) <= FEW else ""
            axes.plot(
                series.x, series.y, color=colour, linestyle=dashes, linewidth=1.6, marker=marker,
                markersize=3.5, label=label,
            )  # fmt: skip
    _dress(axes, chart)


def _bars(axes: Any, series: Series, place: int, count: int, colour: str) -> None:
    """The `place`-th of `count` bars at each x, side by side."""
    steps = [b - a for a, b in zip(series.x, series.x[1:], strict=False)]
    width = 0.8 / count * min(steps, default=1.0)
    middles = [x + (place - (count - 1) / 2) * width for x in series.x]
    axes.bar(middles, series.y, width, color=colour, label=series.name)
    axes.set_xticks(series.x)


def _dress(axes: Any, chart: Chart) -> None:
    from matplotlib.ticker import MaxNLocator, NullFormatter

    axes.set_title(chart.title, fontsize=10, color=INK, loc="left")
    highest = max(max(series.y) for series in chart.series)
    if chart.log:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.yaxis.set_minor_formatter(NullFormatter())
        axes.set_ylim(0.8 * chart.least, max(1.5 * highest, 10 * chart.least))
    else:
        room = 0.06 * (highest - chart.least)
        axes.set_ylim(chart.least - (room if chart.least else 0.0), highest + (room or 1.0))
    if all(series.style != "bars" for series in chart.series):
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel(chart.x_label, fontsize=9, color=FAINT)
    axes.set_ylabel(chart.y_label, fontsize=9, color=FAINT)
    axes.tick_params(labelsize=8, colors=FAINT)
    axes.grid(color=GRID, linewidth=0.7)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1, 1), handlelength=3)
