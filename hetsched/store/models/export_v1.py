"""Version 1 of the export format, which can still be imported.

It has `place` for `storage`, "arena" for "memory", and "feed" for "host_overhead". Pure.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from hetsched.store.models.export_format import (
    Export,
    Observation,
    StoredModel,
)
from hetsched.store.models.stored_values import Count, Moment, Seconds, Units

CurveNameV1 = Literal["total", "compute", "h2d", "d2h", "h2d_beside", "d2h_beside", "feed"]


class ObservationV1(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """An `Observation` of version 1."""

    curve: CurveNameV1
    units: Units
    seconds: Seconds
    at: Moment

    def upgraded(self) -> Observation:
        """Return the same in the current format."""
        curve = "host_overhead" if self.curve == "feed" else self.curve
        return Observation(curve, self.units, self.seconds, self.at)


class ModelV1(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A `StoredModel` of version 1."""

    workload: str
    speed_key: str
    variant: str
    version: str
    device: str
    place: str
    runs: Count
    observations: tuple[ObservationV1, ...]

    def upgraded(self) -> StoredModel:
        """Return the same in the current format."""
        kind, comma, suffix = self.place.partition(",")
        return StoredModel(
            workload=self.workload,
            speed_key=self.speed_key,
            variant=self.variant,
            version=self.version,
            device=self.device,
            storage=f"memory{comma}{suffix}" if kind == "arena" else self.place,
            runs=self.runs,
            observations=tuple(observation.upgraded() for observation in self.observations),
        )


class ExportV1(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An `Export` of version 1."""

    schema: str
    hetsched: str
    models: tuple[ModelV1, ...]

    def upgraded(self) -> Export:
        """Return the same in the current format, in the current order of keys."""
        models = sorted((model.upgraded() for model in self.models), key=lambda model: model.key)
        return Export(hetsched=self.hetsched, models=tuple(models))
