"""Records of devices, of their kinds, of chunks and their times; shared by every layer above."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import overload

import msgspec


class DeviceKind(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of device."""

    name: str  # `DeviceInfo.kind`; also the `kind` in reports
    config_name: str  # `kind` in a configuration
    group: str  # Of all its devices in ``--devices``; with a number, the default name of one
    package: str  # Whose modules ``probe`` and ``device`` implement the kind
    variant_kind: str  # Of the variants that its devices run
    # Devices are CPU cores or teams of them. Equal ones share models, and driving other devices
    # may take processor time from them.
    is_core: bool = False
    # A device may take a core away from the CPU, so this kind is probed before the others.
    reserves_cores: bool = False
    # The configuration says what a device's operations cost; no variant makes it faster.
    is_modelled: bool = False
    # A machine may lack such devices: naming one is then Unavailable, not a usage error.
    can_be_missing: bool = False
    # Other processes use the memory of its devices too, so they are asked what is free.
    shares_memory: bool = False
    runs_in_threads: bool = False  # A device's loop may run in a thread of the engine's process
    # Without a link it can compute a small job beside a larger one, as a `ShareableDevice`.
    runs_side_jobs: bool = False
    has_link: bool | None = None  # Memory of its own; None: as configured
    own_keys: tuple[str, ...] = ()  # Of its tables, beside the keys that all kinds have


_CPU = DeviceKind(
    name="cpu",
    config_name="cpu",
    group="cpu",
    package="hetsched.devices.cpu",
    variant_kind="cpu",
    is_core=True,
    runs_in_threads=True,
    runs_side_jobs=True,
    has_link=False,
    own_keys=("team", "hardware_threads"),
)
_CUDA = DeviceKind(
    name="cuda",
    config_name="gpu",
    group="gpu",
    package="hetsched.devices.cuda",
    variant_kind="cuda",
    can_be_missing=True,
    shares_memory=True,
    has_link=True,
    own_keys=("memory",),
)
_OPENCL = DeviceKind(
    name="opencl",
    config_name="opencl",
    group="ocl",
    package="hetsched.devices.opencl",
    variant_kind="opencl",
    can_be_missing=True,
    own_keys=("memory", "on_cpu", "host_memory", "engines"),
)
_EMULATED = DeviceKind(
    name="emulated",
    config_name="emulated",
    group="emu",
    package="hetsched.devices.emulated",
    variant_kind="cpu",  # it really computes, on a core
    reserves_cores=True,
    is_modelled=True,
    runs_in_threads=True,
    runs_side_jobs=True,
)

DEVICE_KINDS = {kind.name: kind for kind in (_CPU, _CUDA, _OPENCL, _EMULATED)}
"""Kinds by name, in the order in which tables list their devices."""


def configured_kind(config_name: str) -> DeviceKind | None:
    """Return the kind that configurations call `config_name`."""
    matches = (kind for kind in DEVICE_KINDS.values() if kind.config_name == config_name)
    return next(matches, None)


def kind_of_group(word: str) -> DeviceKind | None:
    """Return the kind whose group of devices is called `word`, if any."""
    kinds = DEVICE_KINDS.values()
    return next((kind for kind in kinds if word in (kind.group, kind.config_name)), None)


def group_names() -> list[str]:
    """Return the names of all groups of devices."""
    names = [name for kind in DEVICE_KINDS.values() for name in (kind.group, kind.config_name)]
    return list(dict.fromkeys(names))


class DeviceInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What a device is."""

    name: str
    kind: str  # The name of its `DeviceKind`
    identity: str  # Processor or GPU name; part of the key of its models
    link: bool = False  # It has its own memory behind a link
    memory: int | None = None  # Bytes of that memory that jobs may use; None without a link
    engines: int = 0  # Copy engines (2, 1, 0); meaningless without a link
    cores: tuple[int, ...] = ()  # That its process or thread is pinned to
    clock: str = "wall"  # Or "virtual": times are computed
    # Of a core team: the devices whose cores it uses, one thread each. They idle while it runs.
    members: tuple[str, ...] = ()
    tail_group: str = ""  # Cores with the same name here may share a job's tail. "": none
    # Of a core: equal for the hardware threads of one physical core. None: unknown.
    physical_core: int | None = None
    numa_node: int | None = None  # Whose memory it uses. None: unknown, or several
    details: dict[str, str] = {}

    @property
    def threads(self) -> int:
        """That one kernel call may use."""
        return max(1, len(self.members))

    @property
    def variant_kind(self) -> str:
        """Kind of variants that it runs: "cpu", "cuda" or "opencl"."""
        return DEVICE_KINDS[self.kind].variant_kind

    @property
    def is_core(self) -> bool:
        """Whether it is a CPU core or a team of them."""
        return DEVICE_KINDS[self.kind].is_core

    @property
    def is_shareable(self) -> bool:
        """Whether it can compute a side job beside its main job."""
        return self.is_plain_core and DEVICE_KINDS[self.kind].runs_side_jobs

    @property
    def runs_in_threads(self) -> bool:
        """Whether its loop may run in a thread of the engine's process."""
        return not self.members and DEVICE_KINDS[self.kind].runs_in_threads

    @property
    def is_plain_core(self) -> bool:
        """Whether it has no memory, cores or clock of its own."""
        return not (self.link or self.members or self.clock == "virtual")

    @property
    def shares_memory(self) -> bool:
        """Whether other processes use its memory too, so that what is free changes."""
        return DEVICE_KINDS[self.kind].shares_memory

    @property
    def is_modelled(self) -> bool:
        """Whether its speed is configured, so that it doesn't depend on the variant."""
        return DEVICE_KINDS[self.kind].is_modelled


class ChunkTimes(msgspec.Struct, frozen=True, kw_only=True):
    """Start and end of each phase, seconds on the device's clock (CLOCK_MONOTONIC unless virtual).

    None: the chunk had no such phase.
    """

    copy_in: tuple[float, float] | None = None
    compute: tuple[float, float]
    copy_out: tuple[float, float] | None = None
    late: int = 0  # Phases whose real work took longer than the modelled time
    # The first chunk of its kernel in this process, which loads code and fills caches.
    cold: bool = False
    kernel: int = 0  # That computed it, as `Chunk.kernel`
    taken: bool = False  # The device took the chunk from the shared tail
    # Most units that its kernel passes to the library at once. 0: the kernel doesn't say.
    units_per_call: int = 0

    @property
    def start(self) -> float:
        return self.copy_in[0] if self.copy_in else self.compute[0]

    @property
    def end(self) -> float:
        return self.copy_out[1] if self.copy_out else self.compute[1]


def total_seconds(spans: Iterable[tuple[float, float] | None]) -> float:
    """Return the sum of (start, end); None: there was no such phase."""
    return sum([span[1] - span[0] for span in spans if span is not None])


class ChunkTimeline(msgspec.Struct, frozen=True, omit_defaults=True):
    """Start and end of each phase of one chunk, seconds; None: no such phase.

    `variant`: that computed it, in a race of several. `taken`: from the tail that cores share.
    """

    units: int
    copy_in: tuple[float, float] | None
    compute: tuple[float, float]
    copy_out: tuple[float, float] | None
    variant: str = ""
    taken: bool = False


class Timeline(msgspec.Struct, frozen=True):
    """`makespan` in seconds; `chunks` in the order of the plan."""

    makespan: float
    chunks: tuple[ChunkTimeline, ...]


class Chunk(msgspec.Struct, frozen=True):
    """`count` units, starting with unit `first`.

    `barrier`: all earlier chunks must be done before it starts. `last`: no chunk is known to
    follow (a single copy engine copies O_l out after I_{l+1}). `kernel`: the variant that computes
    it, as an index into those of its assignment; 0 if another device takes it over.
    """

    id: int
    first: int
    count: int
    barrier: bool = False
    last: bool = False
    kernel: int = 0


MAX_EXACT_KERNEL_CHUNK = 8
"""Units of the largest chunk for which exactly a core's kernel is made. Arbitrary."""


def kernel_chunk(largest: int) -> int:
    """Return the units for which a core makes the kernel of chunks of up to `largest` units.

    Chunks change with each new plan of a job, mostly by little, and a kernel may take milliseconds
    to make, or seconds. So they are made for the next of 8, 12, 23, 46, ..., powers of two times
    the root of two: common loads and their halves, thirds and quarters are far from these.
    """
    if largest <= MAX_EXACT_KERNEL_CHUNK:
        return largest
    power = 1 << (largest.bit_length() - 1)
    step = math.isqrt(2 * power**2) + 1
    return step if largest <= step else math.isqrt(8 * power**2) + 1


class EvenChunks(Sequence[Chunk]):
    """Contiguous chunks that differ by one unit at most, the larger ones first; made on demand.

    The same sizes as `evenly(units, count)`; `count` is at most `units`. Ids are consecutive. The
    final one is `last`. `kernels`: `Chunk.kernel` of the first chunks; 0 for the others.
    """

    def __init__(
        self, first_id: int, first: int, units: int, count: int, kernels: tuple[int, ...] = ()
    ) -> None:
        self.units = units
        self.kernels = kernels
        self._first_id, self._first, self._count = first_id, first, count
        self._size, self._larger = divmod(units, count)

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> Chunk: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Chunk]: ...
    def __getitem__(self, index: int | slice) -> Chunk | Sequence[Chunk]:
        if isinstance(index, slice):
            return tuple(self._chunk(number) for number in range(self._count)[index])
        return self._chunk(range(self._count)[index])

    def __iter__(self) -> Iterator[Chunk]:
        return map(self._chunk, range(self._count))

    def _chunk(self, number: int) -> Chunk:
        first = self._first + number * self._size + min(number, self._larger)
        count = self._size + (number < self._larger)
        kernel = self.kernels[number] if number < len(self.kernels) else 0
        is_last = number == self._count - 1
        return Chunk(self._first_id + number, first, count, last=is_last, kernel=kernel)


TAIL_HALVES = 2
"""A core takes its share of the remaining units, divided by this: enough remain for the others."""
TAIL_CHUNK_ID = -1
"""Id of each chunk that a core takes: the engine doesn't number them. A core has one at a time."""


class TailPart(msgspec.Struct, frozen=True):
    """One core's part of a shared tail (`TailCounter`), and the rule by which it takes."""

    first: int  # The whole tail, units; the same for all cores that share it
    units: int
    weight: float  # The core's part of the speed of all of them, 0 to 1
    least: int = 1  # Units of a chunk: they make the cost of taking it negligible
    most: int = 1 << 62  # They bound the wait of a cancellation

    def units_to_take(self, remaining: int) -> int:
        """Return the units of the core's next chunk when `remaining` units weren't taken yet."""
        fair = int(self.weight * remaining / TAIL_HALVES)
        return min(remaining, self.most, max(self.least, fair))

    @property
    def largest_take(self) -> int:
        """The units of the largest chunk that it takes."""
        return self.units_to_take(self.units)


class TailCounter:
    """The units of one tail that no core has taken yet. Not thread-safe.

    The cores of one device process take them chunk by chunk, without the engine, so that they
    finish together although their speeds vary. Chunks shrink with what remains: guided
    self-scheduling (Polychronopoulos & Kuck, IEEE Trans. Comput. C-36, 1987) by halves as in
    factoring (Hummel, Schonberg & Flynn, Commun. ACM 35, 1992), weighted by the learnt speeds.
    """

    def __init__(self, first: int, units: int) -> None:
        self._next = first
        self._end = first + units

    @property
    def remaining(self) -> int:
        return self._end - self._next

    def take(self, part: TailPart) -> tuple[int, int] | None:
        """Take a chunk by the rule of `part`; return (first, count), None if nothing remains."""
        count = part.units_to_take(self.remaining)
        if not count:
            return None
        first = self._next
        self._next += count
        return first, count


class Slot(msgspec.Struct, frozen=True):
    """A region of device memory: `offset` bytes into the memory that `prepare` reserved.

    Chunks in flight at the same time never have overlapping slots, except for slots with the same
    `index`, which the device uses in order.
    """

    index: int
    offset: int
