"""Keys and figures of models, for people."""

from __future__ import annotations

import math

from hetsched.cli.output.terminal import number


def short(device: str) -> str:
    """A device's name, without what it is: "cpu0" of "cpu0 Some Processor"."""
    return device.partition(" ")[0]


def of(speed_key: str) -> str:
    """A model's speed key for people: "512x512 complex64, 23.6 Mflop a unit"."""
    *arrays, flops = speed_key.split(" ")
    shapes = [" ".join(array.split(":")[2:]) for array in arrays if array.count(":") == 3]
    try:
        work = f"{float(flops) / 1e6:.3g} Mflop a unit"
    except ValueError:
        return speed_key
    return ", ".join([*dict.fromkeys(shapes), work])


def percent(share: float | None) -> str:
    """A confidence interval's half-width: "1.2 %"; "-" for a single observation."""
    if share is None or not math.isfinite(share):
        return "-"
    if share >= 10:
        return "> 999 %"
    return f"{100 * share:.1f} %" if share < 1 else f"{number(100 * share)} %"
