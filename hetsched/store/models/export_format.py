"""The records of an export of models, and merging two of them. Pure.

Each model is exported with its key, its runs, and the raw observations, oldest first, as [curve,
units, seconds, seconds since the epoch, contended, chunks]. Fits aren't exported: the importing
side repeats them. Races of variants are exported with their key, as [run, units, paces, seconds
since the epoch].
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
from hetsched.models.evidence.races import NO_RACES, Race, RaceRecord
from hetsched.models.evidence.samples import CurveName, Sample
from hetsched.store.models.models_db import ModelKey, ObservationRow
from hetsched.store.models.race_table import RaceKey, RaceRow
from hetsched.store.models.stored_values import Count, Moment, Paces, Seconds, Units
from hetsched.units import NUMBER_LIMIT

KIND = "hetsched.models.export"
VERSION = 1
SCHEMA = f"{KIND}/{VERSION}"


class Observation(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One observation; `at`: seconds since the epoch."""

    curve: CurveName
    units: Units
    seconds: Seconds
    at: Moment
    contended: bool = False
    chunks: Units = 1


class StoredModel(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One model: its key and its observations, oldest first."""

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
        samples = [Sample(*row[:3], row.contended, row.chunks) for row in self.rows]
        return History(self.runs, samples)

    def knots(self, curve: CurveName) -> list[Knot]:
        """Return the evidence for one curve, by units."""
        repeats: dict[int, list[Observation]] = {}
        for observation in self.observations:
            if observation.curve == curve:
                repeats.setdefault(observation.units, []).append(observation)
        return [
            knot_of(float(units), [seen.seconds for seen in runs], [seen.chunks for seen in runs])
            for units, runs in sorted(repeats.items())
        ]


class StoredRace(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One race, or without paces a change of speed; as `Race`. `at`: seconds since the epoch."""

    number: Count
    units: Annotated[float, msgspec.Meta(ge=0, lt=NUMBER_LIMIT)]
    paces: Paces
    at: Moment


class StoredRaces(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The races of one job on one kind of core, oldest first. `device`: without the name."""

    workload: str
    speed_key: str
    device: str
    storage: str
    races: tuple[StoredRace, ...]

    @classmethod
    def of(cls, key: RaceKey, rows: Iterable[RaceRow]) -> StoredRaces:
        """Make one from the rows of ``models.db``."""
        races = tuple(StoredRace(*row) for row in rows)
        return cls(**msgspec.structs.asdict(key), races=races)

    @property
    def key(self) -> RaceKey:
        return RaceKey(*(getattr(self, name) for name in RaceKey.__struct_fields__))

    @property
    def rows(self) -> list[RaceRow]:
        return [RaceRow(*msgspec.structs.astuple(race)) for race in self.races]

    def record(self) -> RaceRecord:
        """Return what the planner knows by these races."""
        record = NO_RACES
        for race in self.races:
            if race.paces:
                record = record.with_race(Race(race.number, race.units, race.paces))
            else:
                record = record.with_change(race.number)
        return record


class Export(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A whole export."""

    schema: str = SCHEMA
    hetsched: str
    models: tuple[StoredModel, ...]
    races: tuple[StoredRaces, ...] = ()

    def races_of(self, models: Iterable[StoredModel]) -> tuple[StoredRaces, ...]:
        """Return the races in which the variants of these models took part."""
        keys = {model.key.race_key for model in models}
        return tuple(races for races in self.races if races.key in keys)


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


def merged_races(first: StoredRaces, second: StoredRaces) -> StoredRaces:
    """Merge the races of one key, by time; return `first` itself if `second` adds nothing."""
    added = [race for race in second.races if race not in first.races]
    if not added:
        return first
    races = tuple(sorted((*first.races, *added), key=lambda race: race.at))
    return msgspec.structs.replace(first, races=races)
