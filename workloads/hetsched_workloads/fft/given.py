"""What the user gave for an FFT, made complete and checked against the input array. Pure."""

from __future__ import annotations

import difflib
import functools
from collections.abc import Mapping, Sequence
from typing import Any

from hetsched.errors import DataError, UsageError
from hetsched.units import parse_extent
from hetsched_workloads.stored import array_name

NAMES = ("COUNT", "ROWS", "COLS")
DTYPES = {"complex64": "complex64", "complex128": "complex128",
          "c64": "complex64", "c128": "complex128"}  # fmt: skip
DIRECTIONS = {word: word for word in ("forward", "inverse", "roundtrip")}
LONGEST = 60
"""Characters of an extent: more than any size that a computer holds, less than int() refuses."""

FITS = {
    **dict.fromkeys(["complex64", "float32", "float16"], "complex64"),
    **dict.fromkeys(["int8", "int16", "uint8", "uint16", "bool"], "complex64"),
    **dict.fromkeys(["complex128", "float64"], "complex128"),
    **dict.fromkeys(["int32", "int64", "uint32", "uint64"], "complex128"),
}
"""Stored dtype -> the complex dtype that holds all its values (integers above 2**53 aside)."""


@functools.lru_cache(maxsize=256)
def extent(batch: str) -> tuple[int, int, int]:
    """(count, rows, columns) of "256x512x512". Raises UsageError."""
    if not batch:
        raise UsageError("batch is empty: give COUNTxROWSxCOLS, as 256x512x512")
    if len(batch) > LONGEST:
        raise UsageError(
            f"batch {batch[:20]!r}... has {len(batch)} characters; example: 256x512x512"
        )
    count, rows, cols = parse_extent(batch, NAMES)
    return count, rows, cols


def canonical(what: str, value: object, known: Mapping[str, str]) -> str:
    """The full name of `value`. Raises UsageError with the nearest that exists."""
    if isinstance(value, str) and value in known:
        return known[value]
    near = difflib.get_close_matches(str(value).lower(), known, n=1)
    names = sorted(set(known.values()), key=list(known.values()).index)
    hint = f"did you mean {known[near[0]]}?" if near else f"there are: {', '.join(names)}"
    raise UsageError(f"fft has no {what} {value!r}; {hint}")


def infer(given: Mapping[str, Any], array: tuple[tuple[int, ...], str] | None) -> dict[str, Any]:
    """`given` with batch and dtype filled in from the input's (shape, dtype name), if any.

    Raises
    ------
    UsageError
        Malformed, or neither a batch nor an input.
    DataError
        The input isn't COUNTxROWSxCOLS numbers, or isn't what batch says.
    """
    full = dict(given)
    if full.get("dtype") is not None:
        full["dtype"] = canonical("dtype", full["dtype"], DTYPES)
    if full.get("direction") is not None:
        full["direction"] = canonical("direction", full["direction"], DIRECTIONS)
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
    fits = _stored(dtype)
    full["batch"] = _agreed(full.get("batch"), shape, dtype)
    full.setdefault("dtype", fits)
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
            f"x holds {dtype} of shape {tuple(shape)}, batch says {batch};"
            f" give batch {text}, or leave it out"
        )
    return text


def _stored(dtype: str) -> str:
    """The dtype to compute in for what is stored, by name or array-protocol code."""
    name = array_name(dtype)
    if name not in FITS:
        raise DataError(
            f"x holds {dtype}; fft takes bool, integers, float16 to float64, complex64, complex128"
        )
    return FITS[name]
