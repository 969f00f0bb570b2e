"""The records of an export of models, and merging two of them. Pure.

Each model is exported with its key, its runs, and the raw observations, oldest first, as [curve,
units, seconds, seconds since the epoch]. Fits aren't exported: the importing side repeats them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Annotated

import msgspec

from hetsched.models import Knot
from hetsched.models.evidence.co_runners import CoRunners
from hetsched.models.evidence.confidence import knot_of
from hetsched.models.evidence.history import History
from hetsched.models.evidence.samples import CurveName, Sample
from hetsched.store.models.models_db import ModelKey, ObservationRow
from hetsched.units import NUMBER_LIMIT

KIND = "hetsched.models.export"
VERSION = 3
SCHEMA = f"{KIND}/{VERSION}"

Count = Annotated[int, msgspec.Meta(ge=0, le=NUMBER_LIMIT - 1)]
Units = Annotated[int, msgspec.Meta(ge=1, le=NUMBER_LIMIT - 1)]
Seconds = Annotated[float, msgspec.Meta(gt=0, lt=1e300)]
Moment = Annotated[float, msgspec.Meta(ge=0, lt=1e11)]


class Observation(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One observation; `at`: seconds since the epoch."""

    curve: CurveName
    units: Units
    seconds: Seconds
    at: Moment


class StoredModel(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One model: its key and its observations, oldest first. Version 2 has no `co_runners`."""

    workload: str
    speed_key: str
    variant: str
    version: str
    device: str
    storage: str
    co_runners: CoRunners = "all"
    runs: Count
    observations: tuple[Observation, ...]

    @classmethod
    def of(cls, key: ModelKey, runs: int, rows: Iterable[ObservationRow]) -> StoredModel:
        """Make one from the rows of ``models.db``."""
        observations = tuple(Observation(*row) for row in rows)
        return cls(**msgspec.structs.asdict(key), runs=runs, observations=observations)

    @property
    def key(self) -> ModelKey:
        return ModelKey(*(getattr(self, name) for name in ModelKey.__struct_fields__))

    @property
    def rows(self) -> list[ObservationRow]:
        return [
            ObservationRow(*msgspec.structs.astuple(observation))
            for observation in self.observations
        ]

    def history(self) -> History:
        """Return the history made of these observations."""
        return History(self.runs, [Sample(*row[:3]) for row in self.rows])

    def knots(self, curve: CurveName) -> list[Knot]:
        """Return the evidence for one curve, by units."""
        repeats: dict[int, list[float]] = {}
        for observation in self.observations:
            if observation.curve == curve:
                repeats.setdefault(observation.units, []).append(observation.seconds)
        return [knot_of(float(units), repeats[units]) for units in sorted(repeats)]


class Export(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A whole export."""

    schema: str = SCHEMA
    hetsched: str
    models: tuple[StoredModel, ...]


def describe_key(key: ModelKey) -> str:
    """Describe a key, for messages."""
    beside = f"{key.co_runners} of its neighbours busy"
    return f"{key.workload} ({key.variant} {key.version}) on {key.device}, {key.storage}, {beside}"


def merged(first: StoredModel, second: StoredModel) -> StoredModel:
    """Merge two models of one key, by time; return `first` itself if `second` adds nothing.

    Observations in both count once. The number of runs is the larger of the two, since one of two
    histories of a machine is usually a continuation of the other.
    """
    first_counts, second_counts = Counter(first.observations), Counter(second.observations)
    runs = max(first.runs, second.runs)
    if second_counts <= first_counts and runs == first.runs:
        return first
    union = (first_counts | second_counts).elements()
    observations = tuple(sorted(union, key=lambda observation: observation.at))
    return msgspec.structs.replace(first, runs=runs, observations=observations)
