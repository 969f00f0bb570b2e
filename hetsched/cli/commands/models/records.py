"""Models in the JSON output of `hetsched models`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from hetsched.models import Knot
    from hetsched.models.samples import CoRunners
    from hetsched.store.model_records import ModelKey


class KeyFields(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of a ModelKey."""

    workload: str
    speed_key: str
    variant: str
    version: str
    device: str
    storage: str
    co_runners: CoRunners


class KnotRecord(msgspec.Struct, frozen=True):
    """The evidence at one size; infinite ends of the interval are null."""

    units: float
    seconds: float
    count: int
    low: float
    high: float


def key_fields(key: ModelKey) -> dict[str, Any]:
    """Return the fields of `key`, to make a KeyFields of."""
    return msgspec.structs.asdict(key)


def knot_record(knot: Knot) -> KnotRecord:
    return KnotRecord(knot.units, knot.seconds, knot.count, knot.low, knot.high)
