"""Sizes of arrays as one parameter, "4096x512": parsed, and found from an input."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hetsched.errors import DataError, UsageError
from hetsched.units import parse_extent, quoted
from hetsched.workload import DtypeChoice

Shapes = Mapping[str, tuple[tuple[int, ...], str]]
"""Input -> its shape and stored dtype."""
COUNTS = {1: "one", 2: "two", 3: "three", 4: "four"}


def parse(text: str, forms: Sequence[tuple[str, ...]]) -> tuple[int, ...]:
    """Return the sizes in `text`, named as in the form with as many axes. Raises UsageError."""
    for names in forms:
        if len(forms) == 1 or len(names) == text.count("x") + 1:
            return parse_extent(text, names)
    raise UsageError(f"{quoted(text)}: needs {described(forms)}; example: 256x512")


def described(forms: Sequence[tuple[str, ...]]) -> str:
    return " or ".join("x".join(names) for names in forms)


def infer(
    name: str,
    extent: str,
    forms: Sequence[tuple[str, ...]],
    dtypes: DtypeChoice,
    explicit: Mapping[str, Any],
    stored: tuple[str, tuple[tuple[int, ...], str]] | None,
) -> dict[str, Any]:
    """Return the explicit parameters of workload `name`, with `extent` and dtype of its input.

    Parameters
    ----------
    forms : sequence of tuples
        Names of axes, "ROWS": one tuple for each number of axes.
    stored : (name of the input, (shape, dtype)) or None

    Raises
    ------
    UsageError
        There is neither an input nor an extent.
    DataError
        The input has no such shape or dtype, or contradicts `extent`.
    """
    full = {key: value for key, value in explicit.items() if value is not None}
    if "dtype" in full:
        full["dtype"] = dtypes.parse(name, full["dtype"]).name
    if stored is None:
        if not full.get(extent):
            raise UsageError(f"{name} needs a {extent}, {described(forms)}, or an input array")
        return full
    array, (shape, dtype) = stored
    description, fitting = f"{array} holds {dtype} of shape {tuple(shape)}", dtypes.fitting(dtype)
    if fitting is None:
        raise DataError(f"{description}; {name} computes in {dtypes.description}")
    if len(shape) not in map(len, forms):
        counts = " or ".join(COUNTS[len(names)] for names in forms)
        raise DataError(f"{description}; {name} needs {counts} axes, {described(forms)}")
    if min(shape) < 1:
        raise DataError(f"{description}: it is empty; nothing to compute")
    text = "x".join(map(str, shape))
    if full.get(extent) and parse(str(full[extent]), forms) != tuple(shape):
        raise DataError(
            f"{description}, but {extent} is {full[extent]}; give {text}, or leave it out"
        )
    return {"dtype": fitting.name, **full, extent: text}
