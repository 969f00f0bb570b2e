"""Sizes that users and input arrays give, which must agree. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hetsched.errors import DataError


def take_size(
    full: dict[str, Any],
    sources: dict[str, str],
    description: str,
    name: str,
    size: int,
    source: str,
) -> None:
    """Set the parameter `name` to the `size` that an array has.

    Parameters
    ----------
    full : dict
        Parameters so far; completed here.
    sources : dict
        Where each known size is from, for messages; completed here.
    description, source : str
        What the array holds, and its name.

    Raises
    ------
    DataError
        The array is empty, or the size is known to be another number.
    """
    if size < 1:
        raise DataError(f"{description}: it is empty; nothing to compute")
    if str(full.setdefault(name, size)) != str(size):
        raise DataError(f"{description}, so {name} is {size}; {sources[name]} says {full[name]}")
    sources.setdefault(name, source)


def take_axes(
    full: dict[str, Any],
    sources: dict[str, str],
    array: str,
    axes: Sequence[str],
    shape: Sequence[int],
    dtype: str,
) -> None:
    """Set the parameters `axes`, of two axes, to the sizes that an input array has.

    Raises as `take_size`, and DataError for another number of axes.
    """
    description = f"{array} holds {dtype} of shape {tuple(shape)}"
    if len(shape) != len(axes):
        raise DataError(f"{description}; it needs two axes, {' x '.join(axes)}")
    for name, size in zip(axes, shape, strict=True):
        take_size(full, sources, description, name, size, array)
