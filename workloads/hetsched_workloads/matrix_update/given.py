"""What the user gave for a matrix update, made complete and checked against the arrays. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from hetsched.errors import DataError, UsageError
from hetsched_workloads.stored import array_name

DTYPES = {"float32": "float32", "float64": "float64", "f32": "float32", "f64": "float64"}
AXES = {"C": ("rows", "cols"), "A": ("rows", "inner"), "B": ("inner", "cols")}
FITS = {
    **dict.fromkeys(["float32", "float16", "int8", "int16", "uint8", "uint16", "bool"], "float32"),
    **dict.fromkeys(["float64", "int32", "int64", "uint32", "uint64"], "float64"),
}
"""Stored dtype -> the dtype that holds all its values (integers above 2**53 aside)."""

Shapes = Mapping[str, tuple[tuple[int, ...], str]]


def canonical(dtype: object) -> str:
    """The full name of `dtype`. Raises UsageError with the nearest that exists."""
    if isinstance(dtype, str) and dtype in DTYPES:
        return DTYPES[dtype]
    near = difflib.get_close_matches(str(dtype).lower(), DTYPES, n=1)
    hint = f"did you mean {DTYPES[near[0]]}?" if near else "there are: float32, float64"
    raise UsageError(f"matrix_update has no dtype {dtype!r}; {hint}")


def check_sizes(sizes: Mapping[str, int]) -> None:
    """Raises UsageError when one is below 1."""
    for name, size in sizes.items():
        if size < 1:
            raise UsageError(f"{name}: {size}, must be at least 1")


def infer(given: Mapping[str, Any], arrays: Shapes) -> dict[str, Any]:
    """`given` with sizes and dtype filled in from the input arrays' shapes and dtypes.

    Raises
    ------
    UsageError
        Malformed, or a size that neither the user nor an array says.
    DataError
        The arrays contradict each other or what was given.
    """
    full = {key: value for key, value in given.items() if value is not None}
    if "dtype" in full:
        full["dtype"] = canonical(full["dtype"])
    said: dict[str, str] = {name: "the job" for name in ("rows", "cols", "inner") if name in full}
    for array, (shape, dtype) in arrays.items():
        if array in AXES:
            _take(full, said, array, shape, dtype)
    for name in ("rows", "cols", "inner"):
        if name not in full:
            raise UsageError(f"matrix_update needs {name}, or an input array that has it")
    fits = [_fit(array, dtype) for array, (_, dtype) in arrays.items() if array in AXES]
    full.setdefault("dtype", max(fits, default="float32"))  # "float64" > "float32"
    return full


def _take(
    full: dict[str, Any], said: dict[str, str], array: str, shape: tuple[int, ...], dtype: str
) -> None:
    """The sizes that `array` says, if nobody said otherwise."""
    what = f"{array} holds {dtype} of shape {tuple(shape)}"
    axes = AXES[array]
    if len(shape) != len(axes):
        raise DataError(f"{what}; it needs two axes, {' x '.join(axes)}")
    for name, size in zip(axes, shape, strict=True):
        if size < 1:
            raise DataError(f"{what}: it is empty; nothing to compute")
        if str(full.setdefault(name, size)) != str(size):
            raise DataError(f"{what}, so {name} is {size}; {said[name]} says {full[name]}")
        said.setdefault(name, array)


def _fit(array: str, dtype: str) -> str:
    name = array_name(dtype)
    if name not in FITS:
        raise DataError(
            f"{array} holds {dtype}; matrix_update takes bool, integers and float16 to float64"
        )
    return FITS[name]
