"""What goes into the planner and what comes out, as records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from hetsched.device import Chunk, DeviceInfo
from hetsched.memory import MemoryDemand
from hetsched.models import DeviceModel, SpeedFunction
from hetsched.plans.device_plan import DevicePlan, Mode


@dataclass(frozen=True)
class Candidate:
    """A device that may take part.

    Attributes
    ----------
    info : DeviceInfo
    demand : MemoryDemand
        Of the workload on this kind of device, the device's limit filled in.
    models : mapping
        Variant -> its model on this device, None where there is none; in order of preference.
    tried : mapping
        Variant -> runs so far.
    staged : bool
        Chunks pass through host buffers: the arrays live in files, or are converted.
    charge : float, seconds
        Of its time, that feeding other devices takes (`schedule.feeding`).
    asleep : bool
        Its process would first have to be started.
    measured_total : bool
        Its share is weighed by what its last ones took, whatever their plans were, as Ilic & Sousa
        do; not by what its best plan would take.
    """

    info: DeviceInfo
    demand: MemoryDemand
    models: Mapping[str, DeviceModel | None]
    tried: Mapping[str, int]
    staged: bool = False
    charge: float = 0.0
    asleep: bool = False
    measured_total: bool = False

    @property
    def limited(self) -> bool:
        """It may use less than its memory, now: whole shares take longer than with all of it."""
        mine, now = self.info.memory, self.demand.limit
        return mine is not None and now is not None and now < mine


@dataclass(frozen=True)
class Assignment:
    """What one device is to do.

    Attributes
    ----------
    chunks : tuple of Chunk
        In order; contiguous.
    chunk : int, units
        The largest.
    slots : int
        Chunks that may be in device memory (or in buffers) at once.
    memory : int, bytes
        To set aside for slots; 0 without a link.
    window : int
        Chunks to send ahead.
    predicted_seconds : float or None
        None: no model yet.
    sizes : tuple of int, units
        What each slot of a ring on a device with a link holds; else ().
    """

    device: str
    variant: str
    plan: DevicePlan
    chunks: tuple[Chunk, ...]
    chunk: int
    slots: int
    memory: int
    window: int
    predicted_seconds: float | None
    sizes: tuple[int, ...] = ()
    candidate: Candidate | None = field(default=None, compare=False, repr=False)
    """The device as it was known when this was planned, for whoever explains it later."""
    model: DeviceModel | None = field(default=None, compare=False, repr=False)
    """Of the variant, as the planner saw it; None: never measured."""

    @property
    def pace(self) -> float | None:
        """Seconds a unit of the share, as predicted."""
        seconds = self.predicted_seconds
        return None if seconds is None else seconds / self.plan.share

    @property
    def ring(self) -> bool:
        return self.plan.mode is Mode.RING


@dataclass(frozen=True)
class JobPlan:
    """`predicted_seconds`: None if a device has no model. `reasons`: why so, one line each."""

    assignments: tuple[Assignment, ...]
    predicted_seconds: float | None
    reasons: tuple[str, ...] = ()
    exploring: bool = False
    """Some device tries a variant that isn't the best known one."""
    curves: Mapping[str, SpeedFunction] = field(default_factory=dict, compare=False, repr=False)
    """Device -> seconds of its share, as known for this plan; none of those never measured."""
    candidates: tuple[Candidate, ...] = field(default=(), compare=False, repr=False)
    """All that could have had a share."""
