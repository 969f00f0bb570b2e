"""The picture of `hetsched models show --plot`: speed functions, points, confidence intervals.

Of one set of parameters there is one panel a curve; of several sets one panel a set, with whole
shares. A device and variant has one colour everywhere; equal cores, if they are many, share one. A
hollow point has no interval, or one that is wider than itself.
"""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hetsched.cli.commands.models.labels import of, short
from hetsched.errors import Unavailable, UsageError
from hetsched.text import MAX_CORES, together

FORMATS = ("png", "svg", "pdf")
PANELS = {
    "total": "whole shares (total)",
    "compute": "kernels (compute)",
    "h2d": "copies to the device (h2d)",
    "d2h": "copies from the device (d2h)",
}
INK, FAINT, GRID = "#22262b", "#5b6470", "#e3e6ea"
COLOURS = (
    "#0b5cad", "#d1495b", "#2a9d4a", "#b8740a", "#6a4fb3", "#0f8b8d", "#8a8f98", "#c2397f",
)  # fmt: skip
MOST_SETS = 6
"""Sets of parameters in one picture: more panels can't be read."""
LEGEND_COLUMNS = 4
STEPS = 200
"""Points of a drawn curve."""
HEADROOM = 1.15
"""Height over the highest point: intervals may be endless, and are cut off there."""


@dataclass(frozen=True)
class Series:
    """One line of a panel."""

    label: str
    colour: str
    learnt: Any


def draw(workload: str, models: Sequence[Any], file: str, force: bool) -> None:
    """Draw `models` into `file`.

    Raises
    ------
    UsageError
        No such format, or more sets of parameters than `MOST_SETS`.
    Unavailable
        matplotlib isn't installed.
    CantCreate
    """
    sets = {of(one.speed_key) for one in models}
    if len(sets) > MOST_SETS:
        raise UsageError(
            f"--plot: {len(sets)} sets of parameters, a picture has room for {MOST_SETS};"
            " choose with --of or --device"
        )
    kind = Path(file).suffix.lower().lstrip(".")
    if kind not in FORMATS:
        known = ", ".join(f".{name}" for name in FORMATS)
        raise UsageError(f"--plot {file}: the name must end in one of {known}")
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise Unavailable(
            "--plot needs matplotlib, which isn't installed: pip install 'hetsched[plot]'"
        ) from None
    from hetsched.store.array_files import write_whole

    raw = io.BytesIO()
    figure = _figure(Figure, workload, series(models))
    figure.savefig(raw, format=kind, dpi=150)
    write_whole(file, raw.getvalue(), force)


def series(models: Sequence[Any]) -> list[Series]:
    """`models` with names and colours; equal cores share them where there are too many."""
    labels = _labels(models, MAX_CORES)
    if len(set(labels)) > len(COLOURS):
        labels = _labels(models, 1)
    colours: dict[str, str] = {}
    for label in labels:
        colours.setdefault(label, COLOURS[len(colours) % len(COLOURS)])
    return [Series(label, colours[label], one) for label, one in zip(labels, models, strict=True)]


def _labels(models: Sequence[Any], cores: int) -> list[str]:
    """By device; and by variant and storage, where these differ. Each work has its own panel."""
    variants = len({(one.variant, one.version) for one in models}) > 1
    storages = len({one.storage for one in models}) > 1
    groups: dict[str, str] = {}
    devices = list(dict.fromkeys(short(one.device) for one in models))
    for label, members in together(devices, str, cores):
        groups.update(dict.fromkeys(members, label))
    return [
        ", ".join(
            [
                groups[short(one.device)],
                *([one.variant] if variants else []),
                *([one.storage] if storages else []),
            ]
        )
        for one in models
    ]


def _figure(figure_kind: Any, workload: str, lines: Sequence[Series]) -> Any:
    panels = _panels(lines)
    columns = min(2, len(panels)) or 1
    rows = math.ceil(len(panels) / columns) or 1
    figure = figure_kind(figsize=(5.6 * columns, 3.9 * rows + 1.1), layout="constrained")
    works = list(dict.fromkeys(of(one.learnt.speed_key) for one in lines))
    what = works[0] if len(works) == 1 else PANELS["total"]
    figure.suptitle(f"{workload}, {what}", fontsize=12, color=INK)
    for place, panel in enumerate(panels, start=1):
        _panel(figure.add_subplot(rows, columns, place), panel)
    from matplotlib.lines import Line2D

    handles = {
        one.label: Line2D([], [], color=one.colour, marker="o", markersize=4.5, linewidth=1.4)
        for one in lines
    }
    figure.legend(
        handles.values(), handles.keys(), loc="outside lower center", frameon=False, fontsize=9,
        ncols=min(LEGEND_COLUMNS if columns > 1 else LEGEND_COLUMNS // 2, len(handles)),
    )  # fmt: skip
    return figure


@dataclass(frozen=True)
class Panel:
    """The curve `name` (total, compute, ...) of some lines."""

    title: str
    name: str
    lines: Sequence[Series]


def _panels(lines: Sequence[Series]) -> list[Panel]:
    """One a curve; where there are several sets of parameters, one a set."""
    sets: dict[str, list[Series]] = {}
    for one in lines:
        sets.setdefault(of(one.learnt.speed_key), []).append(one)
    if len(sets) > 1:
        panels = [Panel(title, "total", some) for title, some in sets.items()]
    else:
        panels = [Panel(title, name, lines) for name, title in PANELS.items()]
    drawn = [
        replace(panel, lines=[one for one in panel.lines if _drawable(one.learnt, panel.name)])
        for panel in panels
    ]
    return [panel for panel in drawn if panel.lines]


def _drawable(learnt: Any, name: str) -> bool:
    """A core's computations are its shares, but for how these were cut."""
    return bool(learnt.knots(name)) and (name != "compute" or bool(learnt.knots("h2d")))


def _panel(axes: Any, panel: Panel) -> None:
    for one in panel.lines:
        _line(axes, one, panel.name)
    knots = [knot for one in panel.lines for knot in one.learnt.knots(panel.name)]
    speeds = [knot.units / knot.seconds for knot in knots]
    axes.set_title(panel.title, fontsize=10, color=INK, loc="left")
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set_ylim(0, HEADROOM * max(speeds))
    axes.set_xlabel("size (units)", fontsize=9, color=FAINT)
    axes.set_ylabel("speed (units/s)", fontsize=9, color=FAINT)
    axes.tick_params(labelsize=8, colors=FAINT)
    axes.grid(color=GRID, linewidth=0.7)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(GRID)


def _line(axes: Any, one: Series, name: str) -> None:
    import numpy as np

    knots = one.learnt.knots(name)
    units = np.array([knot.units for knot in knots], dtype=float)
    curve = getattr(one.learnt.history().model(), name, None)
    if curve is not None and len(knots) > 1:
        sizes = np.geomspace(units[0], units[-1], STEPS)
        axes.plot(sizes, curve.speed(sizes), color=one.colour, linewidth=1.4, alpha=0.85)
    for knot in knots:
        known = knot.half_width < 1
        speed = knot.units / knot.seconds
        if known:
            ends = [[speed - knot.units / knot.high], [knot.units / knot.low - speed]]
            axes.errorbar(
                [knot.units], [speed], yerr=np.maximum(ends, 0.0), color=one.colour,
                capsize=3, linewidth=1.1, fmt="none",
            )  # fmt: skip
        face = one.colour if known else "white"
        axes.plot(
            [knot.units], [speed], marker="o", markersize=4.5, linestyle="none",
            markeredgecolor=one.colour, markerfacecolor=face,
        )  # fmt: skip
