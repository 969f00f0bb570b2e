"""What all pictures have in common: colours, axes, the file. matplotlib is the extra `plot`."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hetsched.cli.terminal import check_new_file
from hetsched.errors import Unavailable, UsageError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = ("png", "svg", "pdf")
DOTS_PER_INCH = 150
INK, FAINT, GRID = "#22262b", "#5b6470", "#e3e6ea"
COLOURS = (
    "#0b5cad", "#d1495b", "#2a9d4a", "#b8740a", "#6a4fb3", "#0f8b8d", "#8a8f98", "#c2397f",
    "#7a4b2a", "#35a7e0", "#93a81c", "#22262b",
)  # fmt: skip


def check(file: str, force: bool) -> None:
    """Check whether a picture can be written to `file`, before anything is computed.

    Raises
    ------
    UsageError
        Unknown format.
    Unavailable
        matplotlib isn't installed.
    CantCreate
        The file exists, is a directory, or its folder doesn't exist.
    """
    if _format(file) not in FORMATS:
        endings = ", ".join(f".{name}" for name in FORMATS)
        raise UsageError(f"--plot {file}: the name must end in one of {endings}")
    figure_class()
    check_new_file(file, force)


def figure_class() -> type[Figure]:
    """Return matplotlib's Figure. Raises Unavailable if it isn't installed."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise Unavailable(
            "--plot needs matplotlib, which isn't installed: pip install 'hetsched[plot]'"
        ) from None
    return Figure


def save(figure: Figure, file: str, force: bool) -> None:
    """Write `figure` to `file`, completely or not at all.

    Raises
    ------
    CantCreate, IOFailure
    """
    from hetsched.store.output_files import write_whole

    raw = io.BytesIO()
    figure.savefig(raw, format=_format(file), dpi=DOTS_PER_INCH)
    write_whole(file, raw.getvalue(), force)


def _format(file: str) -> str:
    return Path(file).suffix.lower().lstrip(".")


def style_axes(axes: Axes, hidden_sides: Sequence[str] = ("top", "right")) -> None:
    """Draw a light grid behind the data and hide the frame's `hidden_sides`."""
    axes.grid(color=GRID, linewidth=0.7)
    axes.set_axisbelow(True)
    for side in hidden_sides:
        axes.spines[side].set_visible(False)


def time_unit(seconds: float) -> tuple[float, str]:
    """Return factor and name of the unit of a time axis that ends at `seconds`."""
    if seconds >= 1.0:
        return 1.0, "s"
    return (1e3, "ms") if seconds >= 1e-3 else (1e6, "us")
