"""Commands of the dispatcher to its driver."""

from __future__ import annotations

from dataclasses import dataclass

from hetsched.device import Chunk


@dataclass(frozen=True)
class Send:
    """Send `chunks` to `device`, in this order."""

    device: str
    chunks: tuple[Chunk, ...]


@dataclass(frozen=True)
class Finished:
    """Every unit is done; issued once."""


Command = Send | Finished
