"""What became of a job, or would become of it, and why: figures only; `wording` says them."""

from __future__ import annotations

from typing import Any

import msgspec

from hetsched.device import ChunkTimeline, Timeline
from hetsched.explain.text import text

SCHEMA = "hetsched.account/1"
PHASES = ("copy_in", "compute", "copy_out")


class Phases(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds of each kind of phase, summed over a device's chunks."""

    copy_in: float = 0.0
    compute: float = 0.0
    copy_out: float = 0.0

    @property
    def copies(self) -> float:
        return self.copy_in + self.copy_out


class Spent(msgspec.Struct, frozen=True, kw_only=True):
    """Where the job's time went on one device, seconds; together always the job's time.

    `computing`; `copying` without computing, so waiting for its link; `between` its chunks, doing
    neither; `before` its first chunk began; `idle` after its last one.
    """

    computing: float
    copying: float
    between: float
    before: float
    idle: float


class Way(msgspec.Struct, frozen=True):
    """Another way to do the same, and what it takes by the models, seconds."""

    what: str
    seconds: float


class WhatIf(msgspec.Struct, frozen=True):
    """What a change of the machine would do: seconds, and what it saves as a share of the time."""

    what: str
    seconds: float
    saves: float


class DeviceAccount(msgspec.Struct, frozen=True, kw_only=True):
    """One device's part.

    Attributes
    ----------
    planned, share : int, units
        Given by the plan; done, or 0 where nothing ran yet.
    chunks : tuple of (count, units)
        As planned, in order, equal ones that follow each other together; `thinned` leaves the
        middle of a long list out.
    planned_chunks : int
        How many they are.
    mode : str
        "ring", "installments" or, without a link, "".
    slots : int
        Chunks that may be in device memory at once.
    why : str
        Why these chunks.
    runs : int or None
        That its model knew; None: never measured.
    predicted_seconds, seconds : float or None
        Of the whole share, by what it was planned with; from its first chunk to its last.
    predicted, measured : Phases or None
    predicted_hidden, hidden : float or None
        Share of the copies' time in which something else went on.
    bound : float or None, seconds
        Of the share on a device with a link: no plan takes less.
    ways : tuple of Way
        What other plans for the share would take; of the first of several equal devices.
    plan, timeline : Timeline or None
        Each phase of each chunk, predicted and measured.
    """

    device: str
    kind: str
    variant: str
    planned: int
    share: int = 0
    chunks: tuple[tuple[int, int], ...] = ()
    planned_chunks: int = 0
    mode: str = ""
    slots: int = 1
    why: str = ""
    runs: int | None = None
    predicted_seconds: float | None = None
    seconds: float | None = None
    predicted: Phases | None = None
    measured: Phases | None = None
    predicted_hidden: float | None = None
    hidden: float | None = None
    spent: Spent | None = None
    bound: float | None = None
    ways: tuple[Way, ...] = ()
    late: int = 0
    plan: Timeline | None = None
    timeline: Timeline | None = None

    @property
    def lumped(self) -> bool:
        """Whether only whole chunks were predicted, copies and all: `plan` calls them compute."""
        return self.plan is not None and self.predicted is None


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a job and why; `str` of it is for people.

    Attributes
    ----------
    job : int or None
        None: nothing was run, this is a plan.
    state : str
        "planned", "running", "done", "failed" or "cancelled".
    seconds, predicted_seconds : float or None
        First chunk's start to last chunk's end, of a running job until now; None: unknown.
    fluid_bound, whole_unit_bound : float or None, seconds
        No split takes less by the models, of a load cut as finely as one likes, and of whole
        units; None where a device was never measured.
    reasons : tuple of str
        The planner's.
    ways : tuple of Way
        Other splits.
    what_if : tuple of WhatIf
        Changes of the machine.
    """

    schema: str = SCHEMA
    job: int | None
    state: str
    workload: str
    params: dict[str, Any] = {}
    load: int
    seconds: float | None = None
    predicted_seconds: float | None = None
    fluid_bound: float | None = None
    whole_unit_bound: float | None = None
    reasons: tuple[str, ...] = ()
    devices: tuple[DeviceAccount, ...] = ()
    ways: tuple[Way, ...] = ()
    what_if: tuple[WhatIf, ...] = ()
    notes: tuple[str, ...] = ()
    error: str | None = None

    def __str__(self) -> str:
        return text(self)


def thinned(account: Account, most: int) -> Account:
    """`account` with about `most` chunks in its timelines and `most` planned ones at most.

    Chunks that follow each other become one, from the first start to the last end; a note says
    so. An account that is short enough stays as it is.
    """
    longest = max((_chunks(one) for one in account.devices), default=0)
    total = sum(_chunks(one) for one in account.devices)
    if total <= most and longest <= most:
        return account
    each = -(-total // most)
    devices = tuple(_thinner(one, each, most) for one in account.devices)
    note = f"timelines: so many chunks are shown {each} at a time, as one"
    return msgspec.structs.replace(account, devices=devices, notes=(*account.notes, note))


def _chunks(one: DeviceAccount) -> int:
    lines = (one.plan, one.timeline)
    return max(len(one.chunks), *(len(line.chunks) if line else 0 for line in lines))


def _thinner(one: DeviceAccount, each: int, most: int) -> DeviceAccount:
    half = most // 2
    long = len(one.chunks) > most
    return msgspec.structs.replace(
        one,
        chunks=(*one.chunks[:half], *one.chunks[-half:]) if long else one.chunks,
        plan=_joined(one.plan, each),
        timeline=_joined(one.timeline, each),
    )


def _joined(line: Timeline | None, each: int) -> Timeline | None:
    if line is None:
        return None
    groups = [line.chunks[first : first + each] for first in range(0, len(line.chunks), each)]
    return Timeline(line.makespan, tuple(_one(group) for group in groups))


def _one(group: tuple[ChunkTimeline, ...]) -> ChunkTimeline:
    spans = {name: _hull([getattr(chunk, name) for chunk in group]) for name in PHASES}
    compute = spans["compute"]
    assert compute is not None, "every chunk is computed"
    units = sum(chunk.units for chunk in group)
    return ChunkTimeline(units, spans["copy_in"], compute, spans["copy_out"])


def _hull(spans: list[tuple[float, float] | None]) -> tuple[float, float] | None:
    known = [span for span in spans if span is not None]
    if not known:
        return None
    return min(start for start, _ in known), max(end for _, end in known)
