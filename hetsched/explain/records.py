"""The explanation of a job or of a plan, as figures; `text` formats them.

Times are in seconds. Every client imports these records, so they don't import NumPy.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from hetsched.device import ChunkTimeline, Timeline
from hetsched.text import notebook_bundle

SCHEMA = "hetsched.explanation/1"


class PhaseSeconds(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds of each kind of phase, summed over a device's chunks."""

    copy_in: float = 0.0
    compute: float = 0.0
    copy_out: float = 0.0

    @property
    def copies(self) -> float:
        return self.copy_in + self.copy_out


PHASES = (("copy_in", "copy in"), ("compute", "compute"), ("copy_out", "copy out"))
"""Fields of `PhaseSeconds`, and of the chunks of a timeline, in words."""


class TimeBreakdown(msgspec.Struct, frozen=True, kw_only=True):
    """One device's use of the job's time; the parts sum to the job's time."""

    computing: float
    copying: float  # without computing, that is waiting for the link
    between: float  # chunks, doing neither
    before: float  # its first chunk
    idle: float  # after its last one


class Alternative(msgspec.Struct, frozen=True):
    """Another split or schedule, and its predicted seconds."""

    description: str
    seconds: float


class WhatIf(msgspec.Struct, frozen=True):
    """A change of the machine: predicted seconds, and the fraction of time saved."""

    change: str
    seconds: float
    saves: float


class WeighedOption(msgspec.Struct, frozen=True):
    """What might be faster and isn't known well, as weighed before the run; seconds.

    `gain`: expected in the runs to come. `cost`: expected of the trial. It is tried if the gain is
    larger, unless another option is worth more.
    """

    what: str
    gain: float
    cost: float
    is_tried: bool = False


class DeviceExplanation(msgspec.Struct, frozen=True, kw_only=True):
    device: str
    kind: str
    variant: str
    planned: int  # units assigned by the plan
    share: int = 0  # units done; 0 if nothing has run yet
    pooled: int = 0  # the part of `planned` that is in the tail that cores share
    taken: int = 0  # the part of `share` that came from there
    chunks: tuple[tuple[int, int], ...] = ()
    """(count, units) as planned, in order; `thinned` omits the middle of a long list."""
    planned_chunks: int = 0
    mode: str = ""  # "ring", "installments" or, without a link, ""
    slots: int = 1  # chunks that may be in device memory at once
    chunk_reason: str = ""  # why the share is cut this way
    call_reason: str = ""  # what each call of its kernel costs, and what follows for the chunks
    runs: int | None = None  # behind its model; None: no model
    predicted_seconds: float | None = None  # of the whole share, by the curve used for planning
    seconds: float | None = None  # from its first chunk to its last
    predicted: PhaseSeconds | None = None
    measured: PhaseSeconds | None = None
    predicted_hidden: float | None = None
    hidden: float | None = None  # fraction of the copies' time that overlapped with other phases
    time_breakdown: TimeBreakdown | None = None
    bound: float | None = None
    """By its model no plan for the share takes less; only with a link."""
    alternatives: tuple[Alternative, ...] = ()
    """Other schedules of the share; only of the first of equal devices with a link."""
    units_per_call: int = 0
    """Most units that its kernel passed to the library at once; 0: the kernel doesn't say."""
    late: int = 0  # phases that took longer than their modelled time
    plan: Timeline | None = None
    timeline: Timeline | None = None

    @property
    def moved_units(self) -> int:
        """Units done beyond those planned, or short of them, other than by the tail."""
        return (self.share - self.taken) - (self.planned - self.pooled)

    @property
    def has_only_whole_chunks(self) -> bool:
        """Whether `plan` shows whole chunks as compute phases, for lack of predicted phases."""
        return self.plan is not None and self.predicted is None


ITERATION_PHASES = ("compute", "transfer", "wait", "converge", "save")
"""The fields of an `IterationSpan` with seconds of each device."""
MoveKind = Literal["balance", "lost", "joined"]
"""Why rows moved: for balance, because a device was lost or disabled, because one came (back)."""


class IterationSpan(msgspec.Struct, frozen=True, kw_only=True):
    """Iterations `first`, `first` + 1, ..., `first` + `count` - 1; one, if it was long enough.

    The tuples are by device: mean seconds per iteration of each phase (NEC, section 6.1; `save`:
    its rows, for the loss of a device with its own memory).
    """

    first: int
    count: int = 1
    seconds: float  # mean per iteration and device
    residual: float | None = None  # after the last of them; None: the workload has none
    rows: tuple[int, ...]  # in the last of them
    compute: tuple[float, ...]
    transfer: tuple[float, ...]
    wait: tuple[float, ...]
    converge: tuple[float, ...]
    save: tuple[float, ...]

    @property
    def last(self) -> int:
        return self.first + self.count - 1


class RowMove(msgspec.Struct, frozen=True, kw_only=True):
    """Rows that moved between devices after an iteration. Seconds expected: by the decision."""

    after: int = 0  # the last iteration with the split before
    kind: MoveKind = "balance"
    reason: str = ""
    before: tuple[int, ...] = ()  # rows of each device
    rows: tuple[int, ...]
    moved: int = 0  # rows that changed their device
    busy: tuple[float, ...] = ()  # of each device without waits, in the last iteration before
    expected_cost: float | None = None  # of moving them; None: it wasn't weighed
    expected_before: float | None = None  # of an iteration
    expected_after: float | None = None
    seconds_before: float | None = None  # of an iteration, mean since the previous move
    seconds_after: float | None = None  # mean until the next one
    first_seconds: float | None = None  # of the first iteration after it
    iterations: int = 0  # with these rows, so far

    @property
    def cost(self) -> float | None:
        """How much longer than the following ones the first iteration took."""
        if self.first_seconds is None or self.seconds_after is None or self.iterations < 2:
            return None
        others = self.seconds_after * self.iterations - self.first_seconds
        return max(0.0, self.first_seconds - others / (self.iterations - 1))

    @property
    def gain(self) -> float | None:
        """Seconds saved by all iterations with these rows; negative: lost."""
        if self.seconds_before is None or self.seconds_after is None:
            return None
        return (self.seconds_before - self.seconds_after) * self.iterations


class WrittenCheckpoint(msgspec.Struct, frozen=True):
    """A checkpoint written after `iteration`; the devices paused for `pause` seconds."""

    iteration: int
    pause: float
    nbytes: int = 0


class IterationHistory(msgspec.Struct, frozen=True, kw_only=True):
    devices: tuple[str, ...]  # in the order of all tuples by device
    first: int = 1  # more if the job continued from a checkpoint
    iterations: int = 0  # the last complete one
    seconds: float = 0.0
    residual: float | None = None
    converged: bool | None = None  # None: not ended, or the workload has no such test
    spans: tuple[IterationSpan, ...] = ()
    moves: tuple[RowMove, ...] = ()  # without `omitted_moves` in the middle
    omitted_moves: int = 0
    checkpoints: tuple[WrittenCheckpoint, ...] = ()  # the last of `written_checkpoints`
    written_checkpoints: int = 0
    checkpoint_seconds: float = 0.0  # of pauses
    repeated: int = 0  # iterations computed again, because a device was lost in them

    @property
    def nbytes(self) -> int:
        per_span = 300 + 5 * 40 * len(self.devices)
        return per_span * (len(self.spans) + len(self.moves))


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a job and its reasons; `str` gives the text for users.

    Attributes
    ----------
    job : int or None
        None: a plan that was not run.
    state : str
        "planned", "running", "done", "failed" or "cancelled".
    seconds, predicted_seconds : float or None
        From the first chunk's start to the last chunk's end, or until now for a running job; None:
        unknown.
    bound : float or None
        The models allow no split into whole units, with any plans, to take less; None if a device
        has no model. A run takes less where the models are too slow.
    schedule : str
        "best", or the schedule that the user chose for devices with a link.
    reasons : tuple of str
        The planner's.
    weighed : tuple of WeighedOption
    alternatives : tuple of Alternative
        Other splits.
    what_if : tuple of WhatIf
        Changes of the machine.
    iterations : IterationHistory or None
        Of an iterative job, whose devices have as `planned` their rows in the first iteration, as
        `share` those in the last one.
    """

    schema: str = SCHEMA
    job: int | None
    state: str
    workload: str
    params: dict[str, Any] = {}
    load: int
    seconds: float | None = None
    predicted_seconds: float | None = None
    bound: float | None = None
    schedule: str = "best"
    reasons: tuple[str, ...] = ()
    weighed: tuple[WeighedOption, ...] = ()
    devices: tuple[DeviceExplanation, ...] = ()
    alternatives: tuple[Alternative, ...] = ()
    what_if: tuple[WhatIf, ...] = ()
    notes: tuple[str, ...] = ()
    error: str | None = None
    iterations: IterationHistory | None = None

    def __str__(self) -> str:
        from hetsched.explain.text import explanation_text

        return explanation_text(self)

    def _repr_mimebundle_(self, **choice: object) -> dict[str, str]:
        """Return what notebooks show: the picture, if there is one, above the text."""
        from hetsched.plots import notebook_picture

        return notebook_bundle(str(self), notebook_picture(self))


def thinned(explanation: Explanation, max_chunks: int) -> Explanation:
    """Return `explanation` with about `max_chunks` chunks in all timelines, to fit a message.

    Successive chunks are merged, from the first start to the last end, and a note is added. Lists
    of planned chunks are cut to `max_chunks`. A short explanation is returned unchanged.
    """
    counts = [
        max(
            len(each.chunks), *(len(line.chunks) for line in (each.plan, each.timeline) if line), 0
        )
        for each in explanation.devices
    ]
    if max(counts, default=0) <= max_chunks and sum(counts) <= max_chunks:
        return explanation
    group_size = -(-sum(counts) // max_chunks)
    half, devices = max_chunks // 2, []
    for device in explanation.devices:
        chunks = device.chunks
        if len(chunks) > max_chunks:
            chunks = (*chunks[:half], *chunks[-half:])
        plan, line = (_merged(each, group_size) for each in (device.plan, device.timeline))
        devices.append(msgspec.structs.replace(device, chunks=chunks, plan=plan, timeline=line))
    notes = (*explanation.notes, f"timelines: chunks are merged, {group_size} at a time")
    return msgspec.structs.replace(explanation, devices=tuple(devices), notes=notes)


def _merged(line: Timeline | None, group_size: int) -> Timeline | None:
    if line is None:
        return None
    starts = range(0, len(line.chunks), group_size)
    groups = [line.chunks[start : start + group_size] for start in starts]
    chunks = [
        ChunkTimeline(
            sum(chunk.units for chunk in group),
            **{field: _enclosing(group, field) for field, _ in PHASES},
            taken=all(chunk.taken for chunk in group),
        )
        for group in groups
    ]
    return Timeline(line.makespan, tuple(chunks))


def _enclosing(group: tuple[ChunkTimeline, ...], field: str) -> Any:
    """Return the span from the first start to the last end of a phase; None without any."""
    spans = [span for chunk in group if (span := getattr(chunk, field)) is not None]
    return (min(start for start, _ in spans), max(end for _, end in spans)) if spans else None
