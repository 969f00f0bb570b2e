"""Commands of the dispatcher to its driver."""

from __future__ import annotations

import msgspec

from hetsched.device import Chunk


class Send(msgspec.Struct, frozen=True):
    """Send `chunks` to `device`, in this order."""

    device: str
    chunks: tuple[Chunk, ...]


class Finished(msgspec.Struct, frozen=True):
    """Every unit is done; issued once."""


Command = Send | Finished
