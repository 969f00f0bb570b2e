"""The picture of an iterative job's --plot, as the papers draw such runs.

A panel for each device with its time per iteration as stacked phases, then the shares over the
iterations, and the residual. Vertical lines: moves of rows and checkpoints.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from hetsched.cli.plots.figure import COLOURS, FAINT, INK, style_axes, time_unit
from hetsched.text import grouped_rows
from hetsched.units import counted, format_seconds

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from hetsched.explain import Explanation
    from hetsched.explain.records import IterationHistory, IterationSpan

WIDTH = 11.0
"""Inches."""
DEVICE_HEIGHT, SHARES_HEIGHT, RESIDUAL_HEIGHT = 1.5, 1.9, 1.5
"""Inches."""
PHASE_COLOURS = {
    "compute": COLOURS[2],
    "transfer": COLOURS[0],
    "wait": "#d9dce1",
    "converge": COLOURS[3],
    "save": COLOURS[4],
}
"""Phase -> colour, from the bottom of the stack."""
MAX_PANELS = 6
"""Beyond this many devices, those of one kind share a panel of their means."""
MAX_BARS = 80
"""Up to this many iterations are drawn as bars, more as areas."""
MAX_MARKED_MOVES = 40
CLIPPED_FRACTION = 0.01
"""Of the iterations, or one of them: those that may be longer than the panels show, ..."""
MIN_CLIPPED = 1.5
"""... if the longest one is so many times as long as the others ..."""
MIN_ITERATIONS_CLIPPED = 10
"""... and there are so many. All arbitrary."""


def figure(explanation: Explanation, history: IterationHistory) -> Figure:
    """Return the figure."""
    from matplotlib.figure import Figure

    panels = _panels(history)
    has_residual = any(span.residual for span in history.spans)
    heights = [DEVICE_HEIGHT] * len(panels) + [SHARES_HEIGHT]
    heights += [RESIDUAL_HEIGHT] if has_residual else []
    picture = Figure(figsize=(WIDTH, sum(heights) + 1.0), layout="constrained")
    axes = picture.subplots(len(heights), 1, sharex=True, squeeze=False, height_ratios=heights)
    column: list[Axes] = list(axes[:, 0])
    if history.spans:
        _draw_panels(column, history, panels, has_residual)
    column[0].set_title(_title(explanation, history), fontsize=10, color=INK, loc="left")
    column[-1].set_xlabel("iteration", fontsize=9, color=FAINT)
    _add_legend(picture, history)
    return picture


def _panels(history: IterationHistory) -> list[tuple[str, list[int]]]:
    """Return label and devices of each panel and of each line of shares."""
    devices = history.devices
    limit = MAX_PANELS if len(devices) <= MAX_PANELS else 1
    return grouped_rows(range(len(devices)), lambda index: devices[index], limit)


def _draw_panels(
    axes: Sequence[Axes],
    history: IterationHistory,
    panels: Sequence[tuple[str, Sequence[int]]],
    has_residual: bool,
) -> None:
    from matplotlib.ticker import MaxNLocator

    longest = _longest_drawn(history.spans)
    scale, unit = time_unit(longest)
    for panel, (label, members) in zip(axes, panels, strict=False):
        _draw_phases(panel, history.spans, members, scale)
        panel.set_ylabel(f"{label}\n({unit})", fontsize=9, color=INK)
        panel.set_ylim(0, 1.05 * longest * scale)
    _note_longer(axes[0], history.spans, longest)
    shares = axes[len(panels)]
    _draw_shares(shares, history)
    if has_residual:
        _draw_residual(axes[-1], history.spans)
    for panel in axes:
        _draw_marks(panel, history)
        panel.tick_params(labelsize=8, colors=FAINT)
        panel.set_xlim(history.first - 0.5, history.iterations + 0.5)
        panel.xaxis.set_major_locator(MaxNLocator(integer=True))
        style_axes(panel)


def _longest_drawn(spans: Sequence[IterationSpan]) -> float:
    """Return the seconds at the top of the panels: few long iterations don't flatten the rest."""
    total = sum(span.count for span in spans)
    to_cut = max(1.0, CLIPPED_FRACTION * total) if total >= MIN_ITERATIONS_CLIPPED else 0.0
    descending = sorted(spans, key=lambda span: -span.seconds)
    longest = descending[0].seconds
    for span in descending:
        to_cut -= span.count
        if to_cut < 0:
            return span.seconds if longest > MIN_CLIPPED * span.seconds else longest
    return longest


def _note_longer(axes: Axes, spans: Sequence[IterationSpan], longest: float) -> None:
    """Say in the picture how many iterations are longer than what it shows."""
    count = sum(span.count for span in spans if span.seconds > longest)
    if count:
        most = format_seconds(max(span.seconds for span in spans))
        axes.text(
            0.995, 0.95, f"cut off: {counted(count, 'longer iteration')}, up to {most}",
            transform=axes.transAxes, ha="right", va="top", fontsize=8, color=INK,
        )  # fmt: skip


def _edges(spans: Sequence[IterationSpan]) -> list[float]:
    """Return where each span begins on the axis of iterations, and where the last one ends."""
    return [*(span.first - 0.5 for span in spans), spans[-1].last + 0.5]


def _draw_phases(
    axes: Axes, spans: Sequence[IterationSpan], members: Sequence[int], scale: float
) -> None:
    """Stack the phases of a device, or their means over several."""
    edges = _edges(spans)
    bottom = [0.0] * len(spans)
    gap = 0.15 if spans[-1].last - spans[0].first < MAX_BARS else 0.0
    for phase, colour in PHASE_COLOURS.items():
        values = [
            scale * sum(getattr(span, phase)[i] for i in members) / len(members) for span in spans
        ]
        top = [a + b for a, b in zip(bottom, values, strict=True)]
        if gap:
            centres = [(a + b) / 2 for a, b in pairwise(edges)]
            axes.bar(centres, values, 1 - gap, bottom=bottom, color=colour)
        else:
            axes.fill_between(
                edges, [*bottom, bottom[-1]], [*top, top[-1]], step="post", color=colour,
                linewidth=0,
            )  # fmt: skip
        bottom = top


def _draw_shares(axes: Axes, history: IterationHistory) -> None:
    """Draw each device's rows as a fraction of all of them."""
    spans = history.spans
    load = sum(spans[0].rows) or 1
    for order, (label, members) in enumerate(_panels(history)):
        values = [100 * sum(span.rows[i] for i in members) / load for span in spans]
        axes.step(
            _edges(spans), [*values, values[-1]], where="post", linewidth=1.6, label=label,
            color=COLOURS[order % len(COLOURS)], linestyle=("-", "--", ":", "-.")[order % 4],
        )  # fmt: skip
    axes.set_ylim(bottom=0)
    axes.set_ylabel("share of the\nrows (%)", fontsize=9, color=INK)
    axes.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))


def _draw_residual(axes: Axes, spans: Sequence[IterationSpan]) -> None:
    points = [(span.last, span.residual) for span in spans if span.residual]
    axes.plot(*zip(*points, strict=True), color=COLOURS[4], linewidth=1.4)
    if all(value > 0 for _, value in points):
        axes.set_yscale("log")
    axes.set_ylabel("residual", fontsize=9, color=INK)


def _draw_marks(axes: Axes, history: IterationHistory) -> None:
    if len(history.moves) <= MAX_MARKED_MOVES:
        for move in history.moves:
            axes.axvline(move.after + 0.5, color=INK, linewidth=0.9, linestyle="--")
    for checkpoint in history.checkpoints:
        axes.axvline(checkpoint.iteration + 0.5, color=FAINT, linewidth=0.8, linestyle=":")


def _title(explanation: Explanation, history: IterationHistory) -> str:
    return (
        f"{explanation.workload}, {counted(explanation.load, 'row')}: job {explanation.job},"
        f" {explanation.state}, {counted(history.iterations - history.first + 1, 'iteration')} in"
        f" {format_seconds(history.seconds)}"
    )


def _add_legend(picture: Figure, history: IterationHistory) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles: list[Patch | Line2D] = [
        Patch(facecolor=colour, label=phase)
        for phase, colour in PHASE_COLOURS.items()
        if any(any(getattr(span, phase)) for span in history.spans)
    ]
    if 0 < len(history.moves) <= MAX_MARKED_MOVES:
        handles.append(
            Line2D([], [], color=INK, linewidth=0.9, linestyle="--", label="rows moved")
        )
    if history.checkpoints:
        handles.append(
            Line2D([], [], color=FAINT, linewidth=0.8, linestyle=":", label="checkpoint")
        )
    picture.legend(handles=handles, loc="outside lower center", ncols=6, frameon=False, fontsize=8)
