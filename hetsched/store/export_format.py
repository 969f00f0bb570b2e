"""Models as JSON that travels: the format of an export, read without trust, and merged. Pure.

One object on one line: `schema`, the version of hetsched that wrote it, and for each model its
key, its runs, and the raw observations, oldest first, as [curve, units, seconds, seconds since the
epoch]. A fit is never exported: whoever imports makes it anew from the observations.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Annotated

import msgspec

from hetsched.errors import ConfigError, DataError
from hetsched.models import Knot
from hetsched.models.evidence.confidence import knot
from hetsched.models.evidence.history import History
from hetsched.models.evidence.samples import CurveName, Sample
from hetsched.store.models_db import ModelKey, Row
from hetsched.units import MOST

KIND = "hetsched.models.export"
VERSION = 1
SCHEMA = f"{KIND}/{VERSION}"

Count = Annotated[int, msgspec.Meta(ge=0, le=MOST - 1)]
Units = Annotated[int, msgspec.Meta(ge=1, le=MOST - 1)]
Seconds = Annotated[float, msgspec.Meta(gt=0, lt=1e300)]
Moment = Annotated[float, msgspec.Meta(ge=0, lt=1e11)]


class Observed(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One observation; `at`: seconds since the epoch."""

    curve: CurveName
    units: Units
    seconds: Seconds
    at: Moment


class Learnt(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One model: its key, and what was observed of it, oldest first."""

    workload: str
    speed_key: str
    variant: str
    version: str
    device: str
    place: str
    runs: Count
    observations: tuple[Observed, ...]

    @classmethod
    def of(cls, key: ModelKey, runs: int, rows: Iterable[Row]) -> Learnt:
        observed = tuple(Observed(*row) for row in rows)
        return cls(**msgspec.structs.asdict(key), runs=runs, observations=observed)

    @property
    def key(self) -> ModelKey:
        return ModelKey(*(getattr(self, name) for name in ModelKey.__struct_fields__))

    @property
    def rows(self) -> list[Row]:
        return [Row(*msgspec.structs.astuple(one)) for one in self.observations]

    def history(self) -> History:
        """What the product makes of these observations."""
        return History(self.runs, [Sample(*row[:3]) for row in self.rows])

    def knots(self, curve: CurveName) -> list[Knot]:
        """The evidence for one curve, by units."""
        repeats: dict[int, list[float]] = {}
        for one in self.observations:
            if one.curve == curve:
                repeats.setdefault(one.units, []).append(one.seconds)
        return [knot(float(units), repeats[units]) for units in sorted(repeats)]


class Export(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All of it."""

    schema: str = SCHEMA
    hetsched: str
    models: tuple[Learnt, ...]


class _Head(msgspec.Struct):
    """What tells an export of any version from other files."""

    schema: str = ""


def encode(export: Export) -> bytes:
    return msgspec.json.encode(export) + b"\n"


def decode(raw: bytes, source: str) -> Export:
    """The export that `raw` is; `source` is said in errors.

    Raises
    ------
    DataError
        Not an export, or a broken one.
    ConfigError
        Of a newer version.
    """
    try:
        schema = msgspec.json.decode(raw, type=_Head).schema
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DataError(f"{source}: not an export of hetsched models: {error}") from None
    kind, _, number = schema.partition("/")
    if kind != KIND or not number.isdecimal():
        what = f"schema {schema[:60]!r}" if schema else "no schema in it"
        raise DataError(f"{source}: not an export of hetsched models: {what}")
    if int(number) > VERSION:
        raise ConfigError(
            f"{source}: exported by a newer hetsched (format {number[:20]}, this one knows"
            f" {VERSION}); update hetsched"
        )
    try:
        export = msgspec.json.decode(raw, type=Export)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DataError(f"{source}: broken export: {error}") from None
    twice = [key for key, count in Counter(one.key for one in export.models).items() if count > 1]
    if twice:
        raise DataError(f"{source}: broken export: the model of {named(twice[0])} is in it twice")
    return export


def named(key: ModelKey) -> str:
    """A key for people."""
    return f"{key.workload} ({key.variant} {key.version}) on {key.device}, {key.place}"


def merged(mine: Learnt, theirs: Learnt) -> Learnt:
    """Both one's observations in order of time, those that both have once; `mine` if it has all.

    Runs are the more of both: of two histories of one machine, one is mostly the longer.
    """
    ours, others = Counter(mine.observations), Counter(theirs.observations)
    runs = max(mine.runs, theirs.runs)
    if others <= ours and runs == mine.runs:
        return mine
    order = sorted((ours | others).elements(), key=lambda one: one.at)
    return msgspec.structs.replace(mine, runs=runs, observations=tuple(order))
