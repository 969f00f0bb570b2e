"""The picture of `hetsched models show --plot`: speed functions, points, confidence intervals.

One panel a curve. A device and variant has one colour everywhere; equal cores, if they are many,
share one. A hollow point has no interval, or one that is wider than itself.
"""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hetsched.cli.models.words import of, short
from hetsched.cli.report import MAX_CORES, together
from hetsched.errors import Unavailable, UsageError

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
        No such format.
    Unavailable
        matplotlib isn't installed.
    CantCreate
    """
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
    from hetsched.store.files import write_whole

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
    """By device; and by variant, work and place, where these differ."""
    variants = len({(one.variant, one.version) for one in models}) > 1
    works = len({one.speed_key for one in models}) > 1
    places = len({one.place for one in models}) > 1
    groups: dict[str, str] = {}
    devices = list(dict.fromkeys(short(one.device) for one in models))
    for label, members in together(devices, str, cores):
        groups.update(dict.fromkeys(members, label))
    return [
        ", ".join(
            [
                groups[short(one.device)],
                *([one.variant] if variants else []),
                *([of(one.speed_key)] if works else []),
                *([one.place] if places else []),
            ]
        )
        for one in models
    ]


def _figure(figure_kind: Any, workload: str, lines: Sequence[Series]) -> Any:
    panels = [name for name in PANELS if any(_drawable(one.learnt, name) for one in lines)]
    columns = min(2, len(panels)) or 1
    rows = math.ceil(len(panels) / columns) or 1
    figure = figure_kind(figsize=(5.6 * columns + 1.6, 3.9 * rows + 0.7), layout="constrained")
    works = {of(one.learnt.speed_key) for one in lines}
    what = f", {works.pop()}" if len(works) == 1 else ""
    figure.suptitle(f"{workload}{what}", fontsize=12, color=INK)
    for place, name in enumerate(panels, start=1):
        _panel(figure.add_subplot(rows, columns, place), name, lines)
    from matplotlib.lines import Line2D

    handles = {
        one.label: Line2D([], [], color=one.colour, marker="o", markersize=4.5, linewidth=1.4)
        for one in lines
    }
    figure.legend(
        handles.values(), handles.keys(), loc="outside right upper", frameon=False, fontsize=9
    )
    return figure


def _drawable(learnt: Any, name: str) -> bool:
    """A core's computations are its shares, but for how these were cut."""
    return bool(learnt.knots(name)) and (name != "compute" or bool(learnt.knots("h2d")))


def _panel(axes: Any, name: str, lines: Sequence[Series]) -> None:
    drawn = [one for one in lines if _drawable(one.learnt, name)]
    for one in drawn:
        _line(axes, one, name)
    speeds = [knot.units / knot.seconds for one in drawn for knot in one.learnt.knots(name)]
    axes.set_title(PANELS[name], fontsize=10, color=INK, loc="left")
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
