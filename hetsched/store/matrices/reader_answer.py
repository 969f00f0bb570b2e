"""What the process that reads a matrix file answers."""

from __future__ import annotations

import msgspec


class ArrayPlace(msgspec.Struct, frozen=True):
    """One array in the memfd; `part` is "" for a dense one."""

    part: str
    shape: tuple[int, ...]
    dtype: str
    offset: int


class ReaderAnswer(msgspec.Struct, frozen=True):
    """The arrays, or what is wrong with the file."""

    arrays: tuple[ArrayPlace, ...] = ()
    error: str = ""
