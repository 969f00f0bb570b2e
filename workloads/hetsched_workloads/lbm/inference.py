"""Completes the parameters of a flow from its mask, and checks both. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from hetsched.errors import DataError, UsageError
from hetsched.units import closest_name, quoted
from hetsched.workload import FLOAT32, FLOAT64, DtypeChoice

DTYPES = DtypeChoice(FLOAT32, FLOAT64)
FLOWS = ("cavity", "channel")
MAX_SPEED = 0.3
"""Cells per step: beyond about half the speed of sound, 1 / sqrt(3), the method isn't a flow."""
MASK_DTYPES = ("bool", "uint8", "|b1", "|u1", "b1", "u1")


def viscosity(p: Any) -> float:
    """Return the kinematic viscosity in cells^2 per step."""
    length = p.cols if p.flow == "cavity" else p.rows
    return float(p.speed * length / p.reynolds)


def relaxation_time(p: Any) -> float:
    """Return tau of BGK's collision, above 1/2."""
    return 3 * viscosity(p) + 0.5


def force(p: Any) -> float:
    """Return the acceleration along the channel: that of a parabola with `speed` at its vertex."""
    return 8 * viscosity(p) * float(p.speed) / p.rows**2 if p.flow == "channel" else 0.0


def check(p: Any) -> None:
    """Raise UsageError if parameters make no sense."""
    for name in ("rows", "cols", "steps"):
        if getattr(p, name) < 1:
            raise UsageError(f"{name}: {getattr(p, name)}, must be at least 1")
    if p.flow not in FLOWS:
        closest = closest_name(str(p.flow).lower(), FLOWS)
        hint = f"did you mean {closest}?" if closest else f"choose from: {', '.join(FLOWS)}"
        raise UsageError(f"lbm has no flow {quoted(p.flow)}; {hint}")
    if not 0 < p.speed <= MAX_SPEED:
        raise UsageError(
            f"speed: {p.speed:g}, must be above 0, at most {MAX_SPEED} cells per step"
        )
    if not (p.reynolds > 0 and math.isfinite(p.reynolds)):
        raise UsageError(f"reynolds: {p.reynolds:g}, must be above 0 and finite")
    if not (p.tolerance >= 0 and math.isfinite(p.tolerance)):
        raise UsageError(f"tolerance: {p.tolerance:g}, must be at least 0 and finite")
    DTYPES.parse("lbm", p.dtype)


def infer(explicit: Mapping[str, Any], mask: tuple[tuple[int, ...], str] | None) -> dict[str, Any]:
    """Return `explicit` with rows, cols and has_mask filled in from the mask.

    Raises
    ------
    UsageError
        Malformed, or a size that neither the user nor the mask gives.
    DataError
        The mask isn't an image of bool or uint8, or contradicts the sizes.
    """
    full = {key: value for key, value in explicit.items() if value is not None}
    if "dtype" in full:
        full["dtype"] = DTYPES.parse("lbm", full["dtype"]).name
    if mask is not None:
        shape, dtype = mask
        description = f"mask holds {dtype} of shape {tuple(shape)}"
        if len(shape) != 2 or min(shape) < 1:
            raise DataError(f"{description}; it needs two axes, rows x cols")
        if dtype not in MASK_DTYPES:
            raise DataError(f"{description}; lbm takes bool or uint8, other than 0: solid")
        for name, size in zip(("rows", "cols"), shape, strict=True):
            if str(full.setdefault(name, size)) != str(size):
                raise DataError(f"{description}, so {name} is {size}; the job says {full[name]}")
        full["has_mask"] = True
    for name in ("rows", "cols"):
        if name not in full:
            raise UsageError(f"lbm needs {name}, or a mask")
    return full
