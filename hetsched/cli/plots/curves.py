"""The picture of `hetsched models show --plot`: speed functions, points, confidence intervals.

For one set of parameters there is a panel with the speed of whole shares, and one with the phases
of each device with a link; for several sets a panel per set. A hollow point has no interval, or
one that is wider than the time itself.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hetsched.cli.commands.models import short_device, work_label
from hetsched.cli.plots.figure import COLOURS, FAINT, GRID, INK, figure_class, style_axes
from hetsched.errors import UsageError
from hetsched.text import MAX_GROUP_ROWS, grouped_rows

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from hetsched.models import Knot
    from hetsched.models.samples import CurveName
    from hetsched.store.model_records import StoredModel

PHASES: dict[CurveName, str] = {
    "compute": "kernels (compute)",
    "h2d": "copies to the device (h2d)",
    "d2h": "copies from the device (d2h)",
}
DASHES = ("-", "--", ":", "-.")
"""One after the other, where there are more lines than colours."""
CURVE_POINTS = 200
MAX_PANELS = 40
"""A larger picture takes minutes and gigabytes. Arbitrary."""
HEADROOM = 1.15
"""Height of the axes relative to the highest point; infinite intervals are clipped there."""


@dataclass(frozen=True)
class CurveLine:
    """One curve of a model with its label and style."""

    label: str
    colour: str
    dashes: str
    model: StoredModel
    curve: CurveName


def figure(workload: str, models: Sequence[StoredModel]) -> Figure:
    """Return the picture of `models`. Raises UsageError if it would have too many panels."""
    panels = panels_of(models)
    if len(panels) > MAX_PANELS:
        raise UsageError(
            f"--plot: {len(panels)} panels, but one picture holds {MAX_PANELS};"
            " choose with --of or --device"
        )
    columns = min(2, len(panels)) or 1
    rows = math.ceil(len(panels) / columns) or 1
    picture = figure_class()(figsize=(5.6 * columns, 3.9 * rows + 0.5), layout="constrained")
    picture.suptitle(f"{workload}: speed by the size of a share", fontsize=12, color=INK)
    for position, (title, lines) in enumerate(panels.items(), start=1):
        _draw_panel(picture.add_subplot(rows, columns, position), title, lines)
    return picture


def panels_of(models: Sequence[StoredModel]) -> dict[str, list[CurveLine]]:
    """Return title -> lines of each panel; a device and variant looks the same everywhere."""
    labels = _labels(models)
    order = {label: number for number, label in enumerate(dict.fromkeys(labels))}
    sets: dict[str, list[CurveLine]] = {}
    phases: dict[str, list[CurveLine]] = {}
    for label, model in zip(labels, models, strict=True):
        if model.knots("total"):
            line = CurveLine(label, *_style(order[label]), model, "total")
            sets.setdefault(work_label(model.speed_key), []).append(line)
        if model.knots("h2d"):
            phases[f"{label}: phases"] = [
                CurveLine(text, *_style(number), model, name)
                for number, (name, text) in enumerate(PHASES.items())
                if model.knots(name)
            ]
    return sets | phases if len(sets) == 1 else sets


def _style(number: int) -> tuple[str, str]:
    return COLOURS[number % len(COLOURS)], DASHES[number // len(COLOURS) % len(DASHES)]


def _labels(models: Sequence[StoredModel]) -> list[str]:
    """Label by device, and by variant and storage where these differ."""
    has_variants = len({(model.variant, model.version) for model in models}) > 1
    has_storages = len({model.storage for model in models}) > 1
    groups: dict[str, str] = {}
    devices = list(dict.fromkeys(short_device(model.device) for model in models))
    for label, members in grouped_rows(devices, str, MAX_GROUP_ROWS):
        groups.update(dict.fromkeys(members, label))
    return [
        ", ".join(
            [
                groups[short_device(model.device)],
                *([model.variant] if has_variants else []),
                *([model.storage] if has_storages else []),
            ]
        )
        for model in models
    ]


def _draw_panel(axes: Axes, title: str, lines: Sequence[CurveLine]) -> None:
    for line in lines:
        _draw_line(axes, line)
    knots = [knot for line in lines for knot in line.model.knots(line.curve)]
    axes.set_title(title, fontsize=10, color=INK, loc="left")
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set_ylim(0, HEADROOM * max(knot.units / knot.seconds for knot in knots))
    axes.set_xlabel("size (units)", fontsize=9, color=FAINT)
    axes.set_ylabel("speed (units/s)", fontsize=9, color=FAINT)
    axes.tick_params(labelsize=8, colors=FAINT)
    style_axes(axes)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(GRID)
    handles, labels = axes.get_legend_handles_labels()
    unique = dict(zip(labels, handles, strict=True))
    axes.legend(list(unique.values()), list(unique), frameon=False, fontsize=8)


def _draw_line(axes: Axes, line: CurveLine) -> None:
    import numpy as np

    knots = line.model.knots(line.curve)
    curve = getattr(line.model.history().model(), line.curve, None)
    if curve is not None and len(knots) > 1:
        sizes = np.geomspace(knots[0].units, knots[-1].units, CURVE_POINTS)
        axes.plot(
            sizes, curve.speed(sizes), color=line.colour, linestyle=line.dashes, linewidth=1.4,
            alpha=0.85,
        )  # fmt: skip
    for knot in knots:
        _draw_knot(axes, knot, line)


def _draw_knot(axes: Axes, knot: Knot, line: CurveLine) -> None:
    is_certain = knot.half_width < 1
    speed = knot.units / knot.seconds
    if is_certain:
        below = max(0.0, speed - knot.units / knot.high)
        above = max(0.0, knot.units / knot.low - speed)
        axes.errorbar(
            [knot.units], [speed], yerr=[[below], [above]], color=line.colour,
            capsize=3, linewidth=1.1, fmt="none",
        )  # fmt: skip
    axes.plot(
        [knot.units], [speed], marker="o", markersize=4.5, linestyle=line.dashes,
        color=line.colour, markerfacecolor=line.colour if is_certain else "white",
        label=line.label,
    )  # fmt: skip
