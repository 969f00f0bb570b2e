"""Sizes that users and input arrays give, which must agree. Pure."""

from __future__ import annotations

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
