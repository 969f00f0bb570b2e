"""Completes the parameters of an FFT from its input array, and checks both. Pure."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from hetsched.errors import DataError, UsageError
from hetsched.units import closest_name, parse_extent, quoted
from hetsched.workload import COMPLEX64, COMPLEX128, DtypeChoice

NAMES = ("COUNT", "ROWS", "COLS")
DTYPES = DtypeChoice(COMPLEX64, COMPLEX128)
DIRECTIONS = ("forward", "inverse", "roundtrip")
MAX_EXTENT_LENGTH = 60
"""Characters of an extent: more than any size in memory needs, fewer than int() refuses."""


@functools.lru_cache(maxsize=256)
def extent(batch: str) -> tuple[int, int, int]:
    """Parse "256x512x512" as (count, rows, columns). Raises UsageError."""
    if not batch:
        raise UsageError("batch is empty: give COUNTxROWSxCOLS, as 256x512x512")
    if len(batch) > MAX_EXTENT_LENGTH:
        raise UsageError(
            f"batch {batch[:20]!r}... has {len(batch)} characters; example: 256x512x512"
        )
    count, rows, cols = parse_extent(batch, NAMES)
    return count, rows, cols


def check_direction(direction: object) -> None:
    """Raise UsageError with the closest direction if there is no such direction."""
    if direction in DIRECTIONS:
        return
    closest = closest_name(str(direction).lower(), DIRECTIONS)
    hint = f"did you mean {closest}?" if closest else f"choose from: {', '.join(DIRECTIONS)}"
    raise UsageError(f"fft has no direction {quoted(direction)}; {hint}")


def infer(
    explicit: Mapping[str, Any], array: tuple[tuple[int, ...], str] | None
) -> dict[str, Any]:
    """Return `explicit` with batch and dtype filled in from the input's (shape, dtype name).

    Raises
    ------
    UsageError
        Malformed, or neither a batch nor an input.
    DataError
        The input isn't COUNTxROWSxCOLS numbers, or contradicts batch.
    """
    full = dict(explicit)
    if full.get("dtype") is not None:
        full["dtype"] = DTYPES.parse("fft", full["dtype"]).name
    if full.get("direction") is not None:
        check_direction(full["direction"])
    full = {key: value for key, value in full.items() if value is not None}
    if "batch" in full:
        extent(str(full["batch"]))
    if array is None:
        if "batch" not in full:
            raise UsageError(
                "fft needs a batch, COUNTxROWSxCOLS as 256x512x512, or an input array"
            )
        return full
    shape, dtype = array
    fitting = _fitting(dtype)
    full["batch"] = _agreed(full.get("batch"), shape, dtype)
    full.setdefault("dtype", fitting)
    return full


def _agreed(batch: str | None, shape: Sequence[int], dtype: str) -> str:
    text = "x".join(map(str, shape))
    if len(shape) != 3:
        raise DataError(
            f"x holds {dtype} of shape {tuple(shape)}; fft needs three axes, COUNTxROWSxCOLS"
        )
    if min(shape) < 1:
        raise DataError(
            f"x holds {dtype} of shape {tuple(shape)}: it is empty; nothing to compute"
        )
    if batch is not None and extent(batch) != tuple(shape):
        raise DataError(
            f"x holds {dtype} of shape {tuple(shape)}, but batch is {batch};"
            f" give batch {text}, or leave it out"
        )
    return text


def _fitting(dtype: str) -> str:
    """Return the dtype to compute in for a stored one, a name or array-protocol code."""
    fitting = DTYPES.fitting(dtype)
    if fitting is None:
        raise DataError(
            f"x holds {dtype}; fft takes bool, integers, float16 to float64, complex64, complex128"
        )
    return fitting.name
