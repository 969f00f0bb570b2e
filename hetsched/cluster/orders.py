"""What the coordinator of a grid tells hosts, and they tell it."""

from __future__ import annotations

import msgspec

from hetsched.cluster.regions import Box, Held

# ---- what hosts are told


class Cut(msgspec.Struct, frozen=True, tag=True):
    """Hold `targets` from now on; get their cells after `iteration` from those that hold them.

    `saved` is the checkpoint that `sources` are of; otherwise they are what hosts hold.
    """

    epoch: int
    generation: int
    iteration: int
    width: int
    sources: tuple[Held, ...]
    targets: tuple[Held, ...]
    saved: str = ""
    peers: dict[str, tuple[str, int, str]] = {}
    """Host -> interface, port and token of the others."""


class Advance(msgspec.Struct, frozen=True, tag=True):
    """Go on up to iteration `until`; then, if it has a name, save a checkpoint, with a copy of it
    on the host `keeper`. Others than `keep` are needed no more."""

    epoch: int
    generation: int
    until: int
    save: str = ""
    keeper: str = ""
    keep: str = ""


class Collect(msgspec.Struct, frozen=True, tag=True):
    """Send the results."""

    epoch: int
    generation: int


Order = Cut | Advance | Collect

# ---- what they tell


class Saving(msgspec.Struct, frozen=True):
    """Rectangles of a checkpoint that a host has."""

    name: str
    iteration: int
    boxes: tuple[Box, ...]


class Opened(msgspec.Struct, frozen=True, tag=True):
    """The host takes part; it has these checkpoints of such a job."""

    epoch: int
    savings: tuple[Saving, ...] = ()


class Ready(msgspec.Struct, frozen=True, tag=True):
    """The host has all of its cells."""

    epoch: int
    generation: int
    seconds: float


class Swept(msgspec.Struct, frozen=True, tag=True):
    """The host is at `iteration`: seconds of the sweep, its steps, and of waiting for frames."""

    epoch: int
    generation: int
    iteration: int
    seconds: float
    computing: float
    waiting: float


class Saved(msgspec.Struct, frozen=True, tag=True):
    """The host has written what `owner` holds, but for an `error`."""

    epoch: int
    name: str
    owner: str
    seconds: float
    error: str = ""


class Unreadable(msgspec.Struct, frozen=True, tag=True):
    """The host can't read what it has of the checkpoint that a cut is to begin with."""

    epoch: int
    generation: int
    reason: str


class Unusable(msgspec.Struct, frozen=True, tag=True):
    """`host` can't go on, as it says itself, or another one that can't reach it."""

    epoch: int
    generation: int
    host: str
    reason: str


class Collected(msgspec.Struct, frozen=True, tag=True):
    """All results of the host have been sent."""

    epoch: int
    generation: int


Notice = Opened | Ready | Swept | Saved | Unreadable | Unusable | Collected
