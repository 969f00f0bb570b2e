"""Pictures of a simulation's charts, one panel each."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from hetsched.cli.plots.figure import COLOURS, FAINT, INK, figure_class, style_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from hetsched.simulate.results import Chart, ExperimentResult, Series

Dashes = str | tuple[int, tuple[float, ...]]

MAX_COLUMNS = 2
MAX_MARKED_POINTS = 30
"""Lines of up to this many points have markers."""
DASHES: tuple[Dashes, ...] = (
    "-", (0, (4, 2)), (0, (1, 1.5)), (0, (6, 2, 1, 2)), (0, (2, 3)),
)  # fmt: skip
"""Different for each line, so that overlapping lines stay visible."""


def figure(result: ExperimentResult) -> Figure:
    """Return the picture of all charts of `result`."""
    charts = result.charts
    columns = min(MAX_COLUMNS, len(charts))
    rows = math.ceil(len(charts) / columns)
    size = (6.6 * columns, 3.7 * rows + 0.5)
    figure = figure_class()(figsize=size, layout="constrained")
    figure.suptitle(result.source, fontsize=11, color=INK)
    for position, chart in enumerate(charts, start=1):
        _panel(figure.add_subplot(rows, columns, position), chart)
    return figure


def _panel(axes: Axes, chart: Chart) -> None:
    bars = [series for series in chart.series if series.style == "bars"]
    styles: dict[str, tuple[str, Dashes]] = {}
    for series in chart.series:
        # Points look like the line that they lie on, and share its name in the legend.
        name = series.name.removesuffix(" measured")
        label = None if name in styles else name
        order = len(styles)
        new_style = COLOURS[order % len(COLOURS)], DASHES[order % len(DASHES)]
        colour, dashes = styles.setdefault(name, new_style)
        if series.style == "bars":
            _bars(axes, series, bars.index(series), len(bars), colour)
        elif series.style == "points":
            axes.plot(series.x, series.y, "o", color=colour, markersize=4.5, label=label)
        else:
            marker = "o" if len(series.x) <= MAX_MARKED_POINTS else ""
            axes.plot(
                series.x, series.y, color=colour, linestyle=dashes, linewidth=1.6,
                marker=marker, markersize=3.5, label=label,
            )  # fmt: skip
    _finish_axes(axes, chart)


def _bars(axes: Axes, series: Series, index: int, count: int, colour: str) -> None:
    """Draw the bars number `index` of the `count` that stand side by side at each x."""
    steps = [b - a for a, b in zip(series.x, series.x[1:], strict=False)]
    width = 0.8 / count * min(steps, default=1.0)
    centres = [x + (index - (count - 1) / 2) * width for x in series.x]
    axes.bar(centres, series.y, width, color=colour, label=series.name)
    axes.set_xticks(series.x)


def _finish_axes(axes: Axes, chart: Chart) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.set_title(chart.title, fontsize=10, color=INK, loc="left")
    _limit_y(axes, chart)
    if all(series.style != "bars" for series in chart.series):
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel(chart.x_label, fontsize=9, color=FAINT)
    axes.set_ylabel(chart.y_label, fontsize=9, color=FAINT)
    axes.tick_params(labelsize=8, colors=FAINT)
    style_axes(axes)
    axes.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1, 1), handlelength=3)


def _limit_y(axes: Axes, chart: Chart) -> None:
    from matplotlib.ticker import NullFormatter

    highest = max(max(series.y) for series in chart.series)
    if chart.log:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.yaxis.set_minor_formatter(NullFormatter())
        axes.set_ylim(0.8 * chart.y_min, max(1.5 * highest, 10 * chart.y_min))
    else:
        margin = 0.06 * (highest - chart.y_min)
        bottom = chart.y_min - (margin if chart.y_min else 0.0)
        axes.set_ylim(bottom, highest + (margin or 1.0))
