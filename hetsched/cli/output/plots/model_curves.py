"""The picture of `hetsched models show --plot`: speed functions, points, confidence intervals.

A hollow point has no interval, or one that is wider than the time itself.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from hetsched.cli.output.model_labels import work_label
from hetsched.cli.output.plots.figure_file import check, figure_class, save
from hetsched.cli.output.plots.model_panels import (
    CURVE_TITLES,
    ModelLine,
    Panel,
    lines_of,
    panels_of,
)
from hetsched.cli.output.plots.style import FAINT, GRID, INK, style_axes
from hetsched.errors import UsageError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from hetsched.models import Knot
    from hetsched.models.samples import CurveName
    from hetsched.store.model_records import StoredModel

MAX_SETS = 6
"""Largest number of parameter sets in one picture; more panels are unreadable."""
MAX_LEGEND_COLUMNS = 4
CURVE_POINTS = 200
HEADROOM = 1.15
"""Height of the axes relative to the highest point; infinite intervals are clipped there."""


def draw(workload: str, models: Sequence[StoredModel], file: str, force: bool) -> None:
    """Draw `models` into `file`.

    Raises
    ------
    UsageError
        Unknown format, or more than `MAX_SETS` sets of parameters.
    Unavailable
        matplotlib isn't installed.
    CantCreate, IOFailure
    """
    check(file, force)
    sets = {work_label(model.speed_key) for model in models}
    if len(sets) > MAX_SETS:
        raise UsageError(
            f"--plot: {len(sets)} sets of parameters, but one picture holds {MAX_SETS};"
            " choose with --of or --device"
        )
    save(_figure(workload, lines_of(models)), file, force)


def _figure(workload: str, lines: Sequence[ModelLine]) -> Figure:
    panels = panels_of(lines)
    columns = min(2, len(panels)) or 1
    rows = math.ceil(len(panels) / columns) or 1
    size = (5.6 * columns, 3.9 * rows + 1.1)
    figure = figure_class()(figsize=size, layout="constrained")
    works = list(dict.fromkeys(work_label(line.model.speed_key) for line in lines))
    subject = works[0] if len(works) == 1 else CURVE_TITLES["total"]
    figure.suptitle(f"{workload}, {subject}", fontsize=12, color=INK)
    for position, panel in enumerate(panels, start=1):
        _draw_panel(figure.add_subplot(rows, columns, position), panel)
    _add_legend(figure, lines, MAX_LEGEND_COLUMNS if columns > 1 else MAX_LEGEND_COLUMNS // 2)
    return figure


def _add_legend(figure: Figure, lines: Sequence[ModelLine], max_columns: int) -> None:
    from matplotlib.lines import Line2D

    handles = {
        line.label: Line2D([], [], color=line.colour, marker="o", markersize=4.5, linewidth=1.4)
        for line in lines
    }
    figure.legend(
        list(handles.values()), list(handles), loc="outside lower center", frameon=False,
        fontsize=9, ncols=min(max_columns, len(handles)),
    )  # fmt: skip


def _draw_panel(axes: Axes, panel: Panel) -> None:
    for line in panel.lines:
        _draw_line(axes, line, panel.curve)
    knots = [knot for line in panel.lines for knot in line.model.knots(panel.curve)]
    speeds = [knot.units / knot.seconds for knot in knots]
    axes.set_title(panel.title, fontsize=10, color=INK, loc="left")
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set_ylim(0, HEADROOM * max(speeds))
    axes.set_xlabel("size (units)", fontsize=9, color=FAINT)
    axes.set_ylabel("speed (units/s)", fontsize=9, color=FAINT)
    axes.tick_params(labelsize=8, colors=FAINT)
    style_axes(axes)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(GRID)


def _draw_line(axes: Axes, line: ModelLine, curve_name: CurveName) -> None:
    import numpy as np

    knots = line.model.knots(curve_name)
    curve = getattr(line.model.history().model(), curve_name, None)
    if curve is not None and len(knots) > 1:
        sizes = np.geomspace(knots[0].units, knots[-1].units, CURVE_POINTS)
        axes.plot(sizes, curve.speed(sizes), color=line.colour, linewidth=1.4, alpha=0.85)
    for knot in knots:
        _draw_knot(axes, knot, line.colour)


def _draw_knot(axes: Axes, knot: Knot, colour: str) -> None:
    is_certain = knot.half_width < 1
    speed = knot.units / knot.seconds
    if is_certain:
        below = max(0.0, speed - knot.units / knot.high)
        above = max(0.0, knot.units / knot.low - speed)
        axes.errorbar(
            [knot.units], [speed], yerr=[[below], [above]], color=colour,
            capsize=3, linewidth=1.1, fmt="none",
        )  # fmt: skip
    axes.plot(
        [knot.units], [speed], marker="o", markersize=4.5, linestyle="none",
        markeredgecolor=colour, markerfacecolor=colour if is_certain else "white",
    )  # fmt: skip
