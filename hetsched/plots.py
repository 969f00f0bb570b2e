"""Pictures of jobs and speed functions; notebooks show those of jobs.

matplotlib is the extra `plot`."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from hetsched.errors import UsageError
from hetsched.explain.records import ITERATION_PHASES, PHASES
from hetsched.text import grouped_rows, short_device, work_label
from hetsched.units import counted, format_seconds

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from hetsched.explain import DeviceExplanation, Explanation, IterationHistory, IterationSpan
    from hetsched.models.samples import CurveName
    from hetsched.store.model_store import StoredModel

FORMATS = ("png", "svg", "pdf")
INK, FAINT, GRID = "#22262b", "#5b6470", "#e3e6ea"
COLOURS = (
    "#0b5cad", "#d1495b", "#2a9d4a", "#b8740a", "#6a4fb3", "#0f8b8d", "#8a8f98", "#c2397f",
    "#7a4b2a", "#35a7e0", "#93a81c", "#22262b",
)  # fmt: skip
DASHES = ("-", "--", ":", "-.")  # One after the other, where there are more lines than colours
STYLE: dict[Any, Any] = {
    "font.size": 8, "text.color": INK, "savefig.dpi": 150, "svg.fonttype": "none",
    "axes.titlesize": 10, "axes.titlelocation": "left", "axes.labelsize": 9,
    "axes.labelcolor": FAINT, "xtick.color": FAINT, "ytick.color": FAINT,
    "axes.grid": True, "grid.color": GRID, "grid.linewidth": 0.7, "axes.axisbelow": True,
    "axes.edgecolor": GRID, "axes.spines.top": False, "axes.spines.right": False,
    "legend.frameon": False, "legend.fontsize": 8,
}  # fmt: skip
WIDTH = 11.0  # Inches


def plot_job(explanation: Explanation, form: str = "svg") -> bytes:
    """Draw a Gantt chart, or the iterations, in one of FORMATS."""
    history = explanation.iterations
    return _drawn(
        lambda: _gantt(explanation) if history is None else _iterations(explanation, history), form
    )


def plot_models(workload: str, models: Sequence[StoredModel], form: str = "svg") -> bytes:
    """Draw the speed functions. Raises UsageError: too many panels."""
    return _drawn(lambda: _curves(workload, models), form)


def notebook_picture(explanation: Explanation) -> str | None:
    """Return SVG; None: there is nothing to draw, or no matplotlib."""
    is_empty = not any(each.plan or each.timeline for each in explanation.devices)
    if is_empty and explanation.iterations is None:
        return None
    try:
        return plot_job(explanation).decode()
    except ImportError:
        return None


def _drawn(draw: Callable[[], Figure], form: str) -> bytes:
    import matplotlib

    raw = io.BytesIO()
    with matplotlib.rc_context(STYLE):
        draw().savefig(raw, format=form)
    return raw.getvalue()


def _time_unit(seconds: float) -> tuple[float, str]:
    """Return factor and name of the unit of a time axis that ends at `seconds`."""
    if seconds >= 1.0:
        return 1.0, "s"
    return (1e3, "ms") if seconds >= 1e-3 else (1e6, "us")


# ---- what a job did when, as the papers draw it

ROW_HEIGHTS = (0.14, 0.42)  # Least and largest height of a row, inches
ROWS_HEIGHT = 20.0  # Inches that many rows share
GAP = 0.33  # Space between two devices, as a fraction of a row
DIGIT_WIDTH = 0.058  # Of a number of units in a box, inches
MIN_LABELLED_ROW = 0.3  # Inches; there are no digits in lower boxes
MAX_EDGED_BOXES = 200  # Of one row: more become a single dark bar if each has an edge
COLOUR = {"copy_in": COLOURS[0], "compute": COLOURS[2], "copy_out": COLOURS[3]}
PLANNED_COLOUR = {"copy_in": "#a3c1e0", "compute": "#b0dabb", "copy_out": "#e4cba5"}
WHOLE_CHUNK_COLOUR = "#cfd4da"  # Of chunks that were predicted as a whole, copies included


def _gantt(explanation: Explanation) -> Figure:
    """Draw a row for each device and kind of phase: the plan above, pale, the measurement below.

    Boxes are chunks, labelled with their units where there is room.
    """
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    rows = [(device, _phases(device)) for device in explanation.devices]
    count = sum(len(phases) + GAP for _, phases in rows) or 1.0
    height = min(ROW_HEIGHTS[1], max(ROW_HEIGHTS[0], ROWS_HEIGHT / count))
    picture = Figure(figsize=(WIDTH, count * height + 1.5), layout="constrained")
    axes = picture.add_subplot()
    lines = [line for device in explanation.devices for line in (device.plan, device.timeline)]
    ends = [line.makespan for line in lines if line]
    ends += [v for v in (explanation.bound, explanation.predicted_seconds) if v]
    end = 1.02 * max(ends, default=1.0) or 1.0
    axes.set_xlim(0, end)
    axes.set_ylim(count, 0)
    digit = DIGIT_WIDTH * end / (0.85 * WIDTH) if height >= MIN_LABELLED_ROW else math.inf
    ticks: dict[float, str] = {}
    legend: dict[str, str] = {}
    top = 0.0
    for device, phases in rows:
        for order, (phase, name) in enumerate(phases):
            label = name if order else f"{device.device}  {name}"
            ticks[top + 0.5] = label if len(phases) > 1 else device.device
            legend |= _draw_row(axes, device, (phase, name), top, digit)
            top += 1
        top += GAP
    axes.set_yticks(list(ticks), list(ticks.values()), color=INK, fontsize=max(5, 19 * height))
    axes.tick_params(axis="y", length=0)
    axes.yaxis.grid(visible=False)
    axes.spines["left"].set_visible(False)
    scale, unit = _time_unit(end)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value * scale:g}")
    axes.set_xlabel(f"time ({unit})")
    _draw_marks(axes, explanation, count * height)
    subject = "plan" if explanation.job is None else f"job {explanation.job}, {explanation.state}"
    title = f"{explanation.workload}, {counted(explanation.load, 'unit')}: {subject}"
    axes.set_title(title, pad=28)
    patches = [Patch(facecolor=colour, label=label) for label, colour in legend.items()]
    picture.legend(handles=patches, loc="outside lower center", ncols=3)
    return picture


def _phases(device: DeviceExplanation) -> list[tuple[str, str]]:
    chunks = [chunk for line in (device.plan, device.timeline) if line for chunk in line.chunks]
    return [
        (phase, name)
        for phase, name in PHASES
        if phase == "compute" or any(getattr(chunk, phase) for chunk in chunks)
    ]


def _draw_row(
    axes: Axes, device: DeviceExplanation, phase: tuple[str, str], top: float, digit: float
) -> dict[str, str]:
    """Draw both timelines of a row; return label -> colour for the legend. `digit`: seconds."""
    field, name = phase
    is_whole = device.has_only_whole_chunks
    pale = WHOLE_CHUNK_COLOUR if is_whole else PLANNED_COLOUR[field]
    planned = ("whole chunks" if is_whole else name) + ", planned"
    lines = [
        (planned, device.plan, pale, INK),
        (f"{name}, measured", device.timeline, COLOUR[field], "white"),
    ]
    drawn = [each for each in lines if each[1] is not None]
    part = 0.88 / max(1, len(drawn))
    used = {}
    for order, (label, line, colour, ink) in enumerate(drawn):
        chunks = line.chunks if line is not None else ()
        spans = [(chunk.units, span) for chunk in chunks if (span := getattr(chunk, field))]
        boxes = [(units, start, end - start) for units, (start, end) in spans]
        if boxes:
            used[label] = colour
        y = top + 0.06 + order * part
        edge = 0.6 if len(boxes) <= MAX_EDGED_BOXES else 0.0
        places = [(start, length) for _, start, length in boxes]
        axes.broken_barh(places, (y, part), facecolor=colour, edgecolor="white", linewidth=edge)
        for units, start, length in boxes:
            if length > digit * (len(str(units)) + 1):
                axes.text(
                    start + length / 2, y + part / 2, str(units), fontsize=6.5, ha="center",
                    va="center_baseline", color=ink, clip_on=True,
                )  # fmt: skip
    return used


def _draw_marks(axes: Axes, explanation: Explanation, inches: float) -> None:
    """Draw vertical lines at the bound and at the end, predicted or real; stack their labels."""
    end = explanation.seconds or explanation.predicted_seconds
    label = "so far" if explanation.state == "running" else "end"
    marks = [
        (explanation.bound, "bound", INK, "-"),
        (end, label if explanation.seconds else "predicted", COLOURS[1], "--"),
    ]
    middle = axes.get_xlim()[1] / 2
    for order, (seconds, label, colour, style) in enumerate(marks):
        if seconds:
            axes.axvline(seconds, color=colour, linewidth=1.0, linestyle=style, zorder=3)
            axes.text(
                seconds, 1 + 0.13 * order / inches, f"{label} {format_seconds(seconds)}",
                fontsize=7.5, transform=axes.get_xaxis_transform(), color=colour, va="bottom",
                ha="right" if seconds > middle else "left",
            )  # fmt: skip


# ---- the iterations of a job

PANEL_HEIGHT = 1.6  # Inches
PHASE_COLOURS = dict(
    zip(ITERATION_PHASES, (COLOURS[2], COLOURS[0], GRID, COLOURS[3], COLOURS[4]), strict=True)
)
MAX_PANELS = 6  # Beyond this many devices, those of one kind share a panel of their means
MAX_MARKED_MOVES = 40
# Few long iterations don't flatten the rest:
SHOWN_FRACTION = 0.99  # Of the iterations: a panel ends at the longest of these ...
MIN_CLIPPED = 1.5  # ... if another one is so many times as long. Both arbitrary


def _iterations(explanation: Explanation, history: IterationHistory) -> Figure:
    """Draw the phases of each device stacked over the iterations, the shares, the residual.

    Vertical lines: moves of rows and checkpoints.
    """
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    spans, devices = history.spans, history.devices
    limit = MAX_PANELS if len(devices) <= MAX_PANELS else 1
    groups = grouped_rows(range(len(devices)), lambda index: devices[index], limit)
    residuals = [(span.last, span.residual) for span in spans if span.residual]
    count = len(groups) + 1 + bool(residuals)
    picture = Figure(figsize=(WIDTH, count * PANEL_HEIGHT + 1.0), layout="constrained")
    panels = list(picture.subplots(count, 1, sharex=True, squeeze=False)[:, 0])
    if spans:
        edges = [*(span.first - 0.5 for span in spans), spans[-1].last + 0.5]
        seconds = sorted(span.seconds for span in spans)
        usual = seconds[round(SHOWN_FRACTION * (len(seconds) - 1) - 0.5)]
        top = usual if seconds[-1] > MIN_CLIPPED * usual else seconds[-1]
        for axes, (label, members) in zip(panels, groups, strict=False):
            _draw_phases(axes, spans, edges, members, top)
            axes.set_ylabel(f"{label}\n({_time_unit(top)[1]})")
        if cut := sum(span.count for span in spans if span.seconds > top):
            most = format_seconds(seconds[-1])
            panels[0].text(
                0.995, 0.95, f"cut off: {counted(cut, 'longer iteration')}, up to {most}",
                transform=panels[0].transAxes, ha="right", va="top",
            )  # fmt: skip
        _draw_shares(panels[len(groups)], spans, edges, groups)
        if residuals:
            panels[-1].plot(*zip(*residuals, strict=True), color=COLOURS[4], linewidth=1.4)
            panels[-1].set_yscale("log" if all(v > 0 for _, v in residuals) else "linear")
            panels[-1].set_ylabel("residual")
        moves = history.moves if len(history.moves) <= MAX_MARKED_MOVES else ()
        for axes in panels:
            for move in moves:
                axes.axvline(move.after + 0.5, color=INK, linewidth=0.9, linestyle="--")
            for checkpoint in history.checkpoints:
                place = checkpoint.iteration + 0.5
                axes.axvline(place, color=FAINT, linewidth=0.8, linestyle=":")
            axes.set_xlim(edges[0], edges[-1])
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    computed = counted(history.iterations - history.first + 1, "iteration")
    panels[0].set_title(
        f"{explanation.workload}, {counted(explanation.load, 'row')}: job {explanation.job},"
        f" {explanation.state}, {computed} in {format_seconds(history.seconds)}"
    )
    panels[-1].set_xlabel("iteration")
    _add_legend(picture, history)
    return picture


def _draw_phases(
    axes: Axes, spans: Sequence[IterationSpan], edges: list[float], members: Sequence[int],
    top: float,
) -> None:  # fmt: skip
    """Stack the phases of a device, or their means over several."""
    scale, _ = _time_unit(top)
    bottom = [0.0] * len(spans)
    for phase, colour in PHASE_COLOURS.items():
        means = [sum(getattr(span, phase)[i] for i in members) / len(members) for span in spans]
        above = [low + scale * mean for low, mean in zip(bottom, means, strict=True)]
        axes.stairs(above, edges, baseline=bottom, fill=True, color=colour)
        bottom = above
    axes.set_ylim(0, 1.05 * scale * top or 1.0)


def _draw_shares(
    axes: Axes, spans: Sequence[IterationSpan], edges: list[float],
    groups: Sequence[tuple[str, Sequence[int]]],
) -> None:  # fmt: skip
    """Draw each device's rows as a fraction of all of them."""
    load = sum(spans[0].rows) or 1
    for order, (label, members) in enumerate(groups):
        colour, dashes = _line_style(order)
        shares = [100 * sum(span.rows[i] for i in members) / load for span in spans]
        axes.stairs(
            shares, edges, baseline=None, label=label, color=colour, linestyle=dashes,
            linewidth=1.6,
        )  # fmt: skip
    axes.set_ylim(bottom=0)
    axes.set_ylabel("share of the\nrows (%)")
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1))


def _add_legend(picture: Figure, history: IterationHistory) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles: list[Patch | Line2D] = [
        Patch(facecolor=colour, label=phase)
        for phase, colour in PHASE_COLOURS.items()
        if any(any(getattr(span, phase)) for span in history.spans)
    ]
    if 0 < len(history.moves) <= MAX_MARKED_MOVES:
        handles.append(Line2D([], [], color=INK, linestyle="--", label="rows moved"))
    if history.checkpoints:
        handles.append(Line2D([], [], color=FAINT, linestyle=":", label="checkpoint"))
    picture.legend(handles=handles, loc="outside lower center", ncols=7)


# ---- speed functions

CURVE_PHASES: dict[CurveName, str] = {
    "compute": "kernels (compute)",
    "h2d": "copies to the device (h2d)",
    "d2h": "copies from the device (d2h)",
}
CURVE_POINTS = 200
MAX_CURVE_PANELS = 40  # A larger picture takes minutes and gigabytes. Arbitrary
HEADROOM = 1.15
"""Height of the axes relative to the highest point; infinite intervals are clipped there."""

Line = tuple[str, tuple[str, str], "StoredModel", "CurveName"]
"""Label, colour and dashes, and whose curve it is."""


def _line_style(number: int) -> tuple[str, str]:
    return COLOURS[number % len(COLOURS)], DASHES[number // len(COLOURS) % len(DASHES)]


def _curves(workload: str, models: Sequence[StoredModel]) -> Figure:
    """Draw the points with their intervals and the curves through them.

    For one set of parameters there is a panel with the speed of whole shares, and one with the
    phases of each device with a link; for several sets a panel per set. A hollow point has no
    interval, or one that is wider than the time itself.
    """
    from matplotlib.figure import Figure

    panels = _panels(models)
    if len(panels) > MAX_CURVE_PANELS:
        raise UsageError(
            f"--plot: {len(panels)} panels, but one picture holds {MAX_CURVE_PANELS};"
            " choose with --of or --device"
        )
    columns = min(2, len(panels)) or 1
    rows = math.ceil(len(panels) / columns) or 1
    picture = Figure(figsize=(5.6 * columns, 3.9 * rows + 0.5), layout="constrained")
    picture.suptitle(f"{workload}: speed by the size of a share", fontsize=12)
    for position, (title, lines) in enumerate(panels.items(), start=1):
        axes = picture.add_subplot(rows, columns, position)
        for line in lines:
            _draw_curve(axes, *line)
        knots = [knot for *_, model, curve in lines for knot in model.knots(curve)]
        axes.set_title(title)
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.set_ylim(0, HEADROOM * max(knot.units / knot.seconds for knot in knots))
        axes.set_xlabel("size (units)")
        axes.set_ylabel("speed (units/s)")
        axes.legend()
    return picture


def _panels(models: Sequence[StoredModel]) -> dict[str, list[Line]]:
    """Return title -> lines of each panel; a device and variant looks the same everywhere."""
    labels = _labels(models)
    styles = {label: _line_style(n) for n, label in enumerate(dict.fromkeys(labels))}
    sets: dict[str, list[Line]] = {}
    phases: dict[str, list[Line]] = {}
    for label, model in zip(labels, models, strict=True):
        if model.knots("total"):
            line: Line = (label, styles[label], model, "total")
            sets.setdefault(work_label(model.speed_key), []).append(line)
        if model.knots("h2d"):
            phases[f"{label}: phases"] = [
                (text, _line_style(number), model, name)
                for number, (name, text) in enumerate(CURVE_PHASES.items())
                if model.knots(name)
            ]
    return sets | phases if len(sets) == 1 else sets


def _labels(models: Sequence[StoredModel]) -> list[str]:
    """Label by device, and by variant and storage where these differ."""
    has_variants = len({(model.variant, model.version) for model in models}) > 1
    has_storages = len({model.storage for model in models}) > 1
    devices = list(dict.fromkeys(short_device(model.device) for model in models))
    rows = grouped_rows(devices, str)
    group_of = {device: label for label, members in rows for device in members}
    labels = []
    for model in models:
        more = [model.variant] * has_variants + [model.storage] * has_storages
        labels.append(", ".join([group_of[short_device(model.device)], *more]))
    return labels


def _draw_curve(
    axes: Axes, label: str, style: tuple[str, str], model: StoredModel, name: CurveName
) -> None:
    import numpy as np

    colour, dashes = style
    knots = model.knots(name)
    curve = getattr(model.history().model(), name, None)
    if curve is not None and len(knots) > 1:
        sizes = np.geomspace(knots[0].units, knots[-1].units, CURVE_POINTS)
        axes.plot(sizes, curve.speed(sizes), color=colour, linestyle=dashes, linewidth=1.4)
    if label not in axes.get_legend_handles_labels()[1]:  # equal cores share one
        axes.plot([], [], "o", color=colour, linestyle=dashes, label=label)
    for knot in knots:
        speed, interval = knot.units / knot.seconds, None
        if knot.half_width < 1:
            low, high = knot.units / knot.high, knot.units / knot.low
            interval = [[max(0.0, speed - low)], [max(0.0, high - speed)]]
        axes.errorbar(
            [knot.units], [speed], yerr=interval, fmt="o", color=colour, markersize=4.5,
            markerfacecolor=colour if interval else "white", capsize=3, linewidth=1.1,
        )  # fmt: skip
