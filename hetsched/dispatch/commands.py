"""What the dispatcher tells its driver to do."""

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
    """Every unit is done; given once."""


Command = Send | Finished
