"""Keys and figures of models as text."""

from __future__ import annotations

import math

from hetsched.cli.output.terminal import number

MAX_SHOWN_FRACTION = 10
"""Wider intervals are shown as "> 999 %"."""


def short_device(device: str) -> str:
    """Return a device's name without its description: "cpu0" of "cpu0 Some Processor"."""
    return device.partition(" ")[0]


def work_label(speed_key: str) -> str:
    """Describe a model's speed key: "512x512 complex64, 23.6 Mflop per unit"."""
    *arrays, flops = speed_key.split(" ")
    shapes = [" ".join(array.split(":")[2:]) for array in arrays if array.count(":") == 3]
    try:
        work = f"{float(flops) / 1e6:.3g} Mflop per unit"
    except ValueError:
        return speed_key
    return ", ".join([*dict.fromkeys(shapes), work])


def percent(fraction: float | None) -> str:
    """Format a confidence interval's half-width: "1.2 %"; "-" for a single observation."""
    if fraction is None or not math.isfinite(fraction):
        return "-"
    if fraction >= MAX_SHOWN_FRACTION:
        return "> 999 %"
    return f"{100 * fraction:.1f} %" if fraction < 1 else f"{number(100 * fraction)} %"
