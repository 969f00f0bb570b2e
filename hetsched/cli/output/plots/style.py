"""Colours and axes that all pictures have in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INK, FAINT, GRID = "#22262b", "#5b6470", "#e3e6ea"
COLOURS = (
    "#0b5cad", "#d1495b", "#2a9d4a", "#b8740a", "#6a4fb3", "#0f8b8d", "#8a8f98", "#c2397f",
    "#7a4b2a", "#35a7e0", "#93a81c", "#22262b",
)  # fmt: skip


def style_axes(axes: Axes, hidden_sides: Sequence[str] = ("top", "right")) -> None:
    """Draw a light grid behind the data and hide the frame's `hidden_sides`."""
    axes.grid(color=GRID, linewidth=0.7)
    axes.set_axisbelow(True)
    for side in hidden_sides:
        axes.spines[side].set_visible(False)
