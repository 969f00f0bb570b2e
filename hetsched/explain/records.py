"""The explanation of a job or of a plan, as figures; `text` formats them."""

from __future__ import annotations

from typing import Any

import msgspec

from hetsched.device import Timeline
from hetsched.explain.iterations.records import IterationHistory

SCHEMA = "hetsched.explanation/1"


class PhaseSeconds(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds of each kind of phase, summed over a device's chunks."""

    copy_in: float = 0.0
    compute: float = 0.0
    copy_out: float = 0.0

    @property
    def copies(self) -> float:
        return self.copy_in + self.copy_out


class TimeBreakdown(msgspec.Struct, frozen=True, kw_only=True):
    """One device's use of the job's time, seconds; the parts sum to the job's time.

    `computing`; `copying` without computing, that is waiting for the link; `between` chunks, doing
    neither; `before` its first chunk; `idle` after its last one.
    """

    computing: float
    copying: float
    between: float
    before: float
    idle: float


class Alternative(msgspec.Struct, frozen=True):
    """Another split or plan, and its predicted seconds."""

    description: str
    seconds: float


class WhatIf(msgspec.Struct, frozen=True):
    """A change of the machine: predicted seconds, and the fraction of time saved."""

    change: str
    seconds: float
    saves: float


class DeviceExplanation(msgspec.Struct, frozen=True, kw_only=True):
    """One device's part.

    Attributes
    ----------
    planned, share : int, units
        Assigned by the plan; done, or 0 if nothing has run yet.
    pooled, taken : int, units
        The part of `planned` that is in the tail that cores share; the part of `share` that it
        took from there.
    chunks : tuple of (count, units)
        As planned, in order, with runs of equal chunks as one pair; `thinned` omits the middle of
        a long list.
    planned_chunks : int
        Their number.
    mode : str
        "ring", "installments" or, without a link, "".
    slots : int
        Chunks that may be in device memory at once.
    chunk_reason : str
        Why the share is cut this way.
    call_reason : str
        What each call of its kernel costs, and what follows for the chunks; "": nothing.
    runs : int or None
        Runs behind its model; None: no model.
    predicted_seconds, seconds : float or None
        Of the whole share: by the curve used for planning; measured from first to last chunk.
    predicted, measured : PhaseSeconds or None
    predicted_hidden, hidden : float or None
        Fraction of the copies' time that overlapped with other phases.
    time_breakdown : TimeBreakdown or None
    bound : float or None, seconds
        Lower bound of any plan for the share on a device with a link.
    alternatives : tuple of Alternative
        Other plans for the share; only for the first of equal devices.
    units_per_call : int
        Most units that its kernel passed to the library at once; 0: the kernel doesn't say.
    late : int
        Phases that took longer than their modelled time.
    plan, timeline : Timeline or None
        Each phase of each chunk, predicted and measured.
    """

    device: str
    kind: str
    variant: str
    planned: int
    share: int = 0
    pooled: int = 0
    taken: int = 0
    chunks: tuple[tuple[int, int], ...] = ()
    planned_chunks: int = 0
    mode: str = ""
    slots: int = 1
    chunk_reason: str = ""
    call_reason: str = ""
    runs: int | None = None
    predicted_seconds: float | None = None
    seconds: float | None = None
    predicted: PhaseSeconds | None = None
    measured: PhaseSeconds | None = None
    predicted_hidden: float | None = None
    hidden: float | None = None
    time_breakdown: TimeBreakdown | None = None
    bound: float | None = None
    alternatives: tuple[Alternative, ...] = ()
    units_per_call: int = 0
    late: int = 0
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
    fluid_bound, whole_unit_bound : float or None, seconds
        Lower bounds of any split by the models, for divisible and for whole units; None if a
        device has no model.
    reasons : tuple of str
        The planner's.
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
    fluid_bound: float | None = None
    whole_unit_bound: float | None = None
    reasons: tuple[str, ...] = ()
    devices: tuple[DeviceExplanation, ...] = ()
    alternatives: tuple[Alternative, ...] = ()
    what_if: tuple[WhatIf, ...] = ()
    notes: tuple[str, ...] = ()
    error: str | None = None
    iterations: IterationHistory | None = None

    def __str__(self) -> str:
        # Every client imports the records; few print one.
        from hetsched.explain.text import explanation_text

        return explanation_text(self)
