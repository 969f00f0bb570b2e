"""Commands of the dispatcher to its driver."""

from __future__ import annotations

import msgspec

from hetsched.device import Chunk


class Send(msgspec.Struct, frozen=True):
    """Send `chunks` to `device`, in this order.

    `opens_tail`: after them it takes chunks of its tail.
    """

    device: str
    chunks: tuple[Chunk, ...]
    opens_tail: bool = False


class Finished(msgspec.Struct, frozen=True):
    """Every unit is done; issued once."""


Command = Send | Finished
