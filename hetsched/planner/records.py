"""Input and output of the planner, as records."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from hetsched.device import Chunk, DeviceInfo, EvenChunks, TailPart
from hetsched.explain.records import WeighedOption
from hetsched.job import Schedule
from hetsched.memory import MemoryDemand
from hetsched.models import DeviceModel, SpeedFunction
from hetsched.models.races import NO_RACES, RaceRecord
from hetsched.models.samples import CoRunners
from hetsched.plans.device_plan import DevicePlan, Overlap
from hetsched.plans.slots import planning_memory

NEAREST: dict[CoRunners, tuple[CoRunners, ...]] = {
    "none": ("none", "some", "all"),
    "some": ("some", "all", "none"),
    "all": ("all", "some", "none"),
}
"""All co-runners, the nearest first."""
DEVICE_BYTES, SIZE_BYTES, CHUNK_BYTES = 10_000, 8, 150
"""Of a plan's device, with its models; of a chunk that is a size only, or a record. Estimates for
64-bit Python."""


Purpose = Literal["work", "probe", "race", "sizes"]
"""Why a device has its chunks: to do the job; a unit, to see whether it is as fast as before;
variants take turns; or some chunks only serve to measure their sizes."""


@dataclass(frozen=True)
class PlannedRace:
    """`time_ratio`: the mean time of all of them over that of the best."""

    rivals: tuple[str, ...]
    rounds: int
    time_ratio: float = 1.0


@dataclass(frozen=True)
class Candidate:
    """A device that may take part.

    By variant, in order of preference: `models`, None without measurements, and `run_counts`;
    `models_beside` and `runs_beside` the same by co-runners. `demand` has the device's limit.
    """

    info: DeviceInfo
    demand: MemoryDemand
    models: Mapping[str, DeviceModel | None]
    run_counts: Mapping[str, int]
    # Chunks pass through host buffers: the arrays are in files
    is_staged: bool = False
    # Its process has to be started first
    needs_start: bool = False
    schedule: Schedule = "best"
    # Of a device with a link: the plan of the last run, kept if another one gains little
    last_plan: DevicePlan | None = None
    # Of a device with a link: the chunks of this run, some of which measure sizes
    size_trial: DevicePlan | None = None
    race: PlannedRace | None = None
    # Runs of other devices since its last one, and since its last share of more than a unit
    idle_runs: int = 0
    slow_runs: int = 0
    races: RaceRecord = NO_RACES
    models_beside: Mapping[CoRunners, Mapping[str, DeviceModel]] = field(default_factory=dict)
    runs_beside: Mapping[CoRunners, Mapping[str, int]] = field(default_factory=dict)

    def beside(self, co_runners: CoRunners) -> Candidate:
        """Return the candidate with the models of these co-runners, or of the nearest ones."""
        if not self.models_beside:
            return self
        models = dict(self.models)
        for nearest in reversed(NEAREST[co_runners]):
            models.update(self.models_beside.get(nearest, {}))
        return replace(self, models=models)

    def with_only(self, variant: str) -> Candidate:
        return replace(self, models={variant: self.models[variant]})

    @property
    def can_race(self) -> bool:
        """Whether variants can take turns within a run: a core has several kernels."""
        return self.info.is_core and not self.info.is_modelled

    @property
    def overlap(self) -> Overlap:
        return Overlap.of(self.info.engines)

    @property
    def memory(self) -> MemoryDemand:
        return planning_memory(self.demand, self.is_staged)

    @property
    def is_constrained(self) -> bool:
        """Whether its shares take longer than usual: by less memory, or by a given schedule."""
        memory, limit = self.info.memory, self.demand.limit
        is_limited = memory is not None and limit is not None and limit < memory
        return is_limited or (self.info.link and self.schedule != "best")


@dataclass(frozen=True)
class Assignment:
    """The work of one device: its part of the load, and how it is sent.

    `chunks`: its own part of the share, contiguous and in order; very many are made on demand.
    `slots`: chunks that may be in device memory, or in buffers, at once; with a link `slot_memory`
    bytes are reserved for them, and each of a ring has its size. `window`: chunks to send ahead.
    `pooled`: the units of the share that are in the `tail`, which it has with other cores.
    `rivals`: variants that race against `variant` (`Chunk.kernel` 1, 2, ...). Without measurements
    there are no `predicted_seconds` and no `model`.
    """

    device: str
    variant: str
    plan: DevicePlan
    chunks: Sequence[Chunk]
    max_chunk: int
    slots: int
    slot_memory: int
    window: int
    predicted_seconds: float | None
    slot_sizes: tuple[int, ...] = ()
    candidate: Candidate | None = field(default=None, compare=False, repr=False)
    model: DeviceModel | None = field(default=None, compare=False, repr=False)
    tail: TailPart | None = None
    pooled: int = 0
    rivals: tuple[str, ...] = ()
    purpose: Purpose = "work"

    @property
    def is_probe(self) -> bool:
        return self.purpose == "probe"

    @property
    def own_units(self) -> int:
        """Units of its share that no other core takes from the tail."""
        return self.plan.share - self.pooled

    @property
    def variants(self) -> tuple[str, ...]:
        """All variants, by `Chunk.kernel`."""
        return (self.variant, *self.rivals)

    @property
    def pace(self) -> float | None:
        """Predicted seconds per unit of the share."""
        seconds = self.predicted_seconds
        return None if seconds is None else seconds / self.plan.share


@dataclass(frozen=True)
class JobPlan:
    """The assignments of all devices that have a share.

    `predicted_seconds`: of the slowest device; None if one has no model. `reasons`: a line for
    each device. `trial`: what is tried in this run, or "". `curves`: seconds of each device's
    share, as used for the plan. `candidates`: all devices that could have had a share.
    """

    assignments: tuple[Assignment, ...]
    predicted_seconds: float | None
    reasons: tuple[str, ...] = ()
    trial: str = ""
    weighed: tuple[WeighedOption, ...] = ()
    curves: Mapping[str, SpeedFunction] = field(default_factory=dict, compare=False, repr=False)
    candidates: tuple[Candidate, ...] = field(default=(), compare=False, repr=False)

    def with_purposes(self, purposes: Mapping[str, Purpose]) -> JobPlan:
        assignments = tuple(
            replace(each, purpose=purposes.get(each.device, each.purpose))
            for each in self.assignments
        )
        return replace(self, assignments=assignments)

    def prediction_error(self, makespan: float) -> float:
        """Return the relative error; 0: not worth another plan; infinite without a prediction."""
        predicted = self.predicted_seconds
        if predicted is None:
            return math.inf
        error = abs(makespan - predicted)
        return 0.0 if error <= 1e-3 else error / predicted  # a plan takes about as long to make

    @property
    def nbytes(self) -> int:
        chunks = sum(
            len(each.chunks) * (SIZE_BYTES if isinstance(each.chunks, EvenChunks) else CHUNK_BYTES)
            for each in self.assignments
        )
        return DEVICE_BYTES * max(len(self.candidates), len(self.assignments)) + chunks

    @functools.cached_property
    def shares(self) -> Mapping[str, int]:
        return {assignment.device: assignment.plan.share for assignment in self.assignments}

    @property
    def load(self) -> int:
        return sum(assignment.plan.share for assignment in self.assignments)
