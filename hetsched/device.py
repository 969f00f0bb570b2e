"""Records about devices, chunks and how long they took; shared by every layer above."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from hetsched.device_kinds import device_kind


class DeviceInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What a device is. `identity` is part of the key of its models (processor or GPU name).

    `memory` in bytes: what a job may use of the device's own memory, None without a link.
    `engines`: copy engines (2, 1, 0), meaningless without a link. `cores`: those it is pinned to.
    `clock`: "wall", or "virtual" where times are computed. `members`: of a core team, the devices
    whose cores it has, each of them one thread of its kernels; it never computes beside them.
    """

    name: str
    kind: str
    identity: str
    link: bool = False
    memory: int | None = None
    engines: int = 0
    cores: tuple[int, ...] = ()
    clock: str = "wall"
    members: tuple[str, ...] = ()
    details: dict[str, str] = {}

    @property
    def threads(self) -> int:
        """Threads that one call of a kernel may use."""
        return max(1, len(self.members))

    @property
    def variant_kind(self) -> str:
        """The kind of variants that it runs: "cpu" or "cuda"."""
        return device_kind(self.kind).variant_kind

    @property
    def is_core(self) -> bool:
        """Whether it is a CPU core or a team of them."""
        return device_kind(self.kind).is_core

    @property
    def is_modelled(self) -> bool:
        """Whether its speed is configured, so that no variant makes it faster."""
        return device_kind(self.kind).is_modelled


class ChunkTimes(msgspec.Struct, frozen=True, kw_only=True):
    """Start and end of each phase, seconds on the device's clock (CLOCK_MONOTONIC unless virtual).

    None: the chunk had no such phase. `late`: phases whose real work outlasted the modelled time.
    `busy`: seconds of `compute` in which the device worked on it, None where that isn't known; a
    core that others use too does so for less than all of it. `host_overhead`: seconds of processor
    time that the device's process took to submit, copy and wait, None where that isn't known.
    `cold`: the first chunk of its kernel in this process, which loads code and fills caches.
    """

    copy_in: tuple[float, float] | None = None
    compute: tuple[float, float]
    copy_out: tuple[float, float] | None = None
    late: int = 0
    busy: float | None = None
    host_overhead: float | None = None
    cold: bool = False

    @property
    def start(self) -> float:
        return self.copy_in[0] if self.copy_in else self.compute[0]

    @property
    def end(self) -> float:
        return self.copy_out[1] if self.copy_out else self.compute[1]


@dataclass(frozen=True)
class ChunkTimeline:
    """Start and end of each phase of one chunk, seconds; None: there is no such phase."""

    units: int
    copy_in: tuple[float, float] | None
    compute: tuple[float, float]
    copy_out: tuple[float, float] | None


@dataclass(frozen=True)
class Timeline:
    """`makespan` in seconds; `chunks` in the order of the plan."""

    makespan: float
    chunks: tuple[ChunkTimeline, ...]


class Chunk(msgspec.Struct, frozen=True):
    """`count` units from `first` on. `barrier`: all chunks before it must be through first.

    `last`: as far as is known, no chunk follows (one copy engine copies O_l out after I_{l+1}).
    """

    id: int
    first: int
    count: int
    barrier: bool = False
    last: bool = False


class Slot(msgspec.Struct, frozen=True):
    """A region of device memory: `offset` bytes into the memory that `prepare` set aside.

    Two chunks that are in flight at once never have overlapping slots, unless they have the same
    `index` and the device orders them.
    """

    index: int
    offset: int
