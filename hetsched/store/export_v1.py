"""Version 1 of the export format, which can still be imported.

It said `place` for `storage`, and "arena" for "memory". Pure.
"""

from __future__ import annotations

import msgspec

from hetsched.store.export_format import Count, Export, Observation, StoredModel


class ModelV1(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A `StoredModel` of version 1."""

    workload: str
    speed_key: str
    variant: str
    version: str
    device: str
    place: str
    runs: Count
    observations: tuple[Observation, ...]

    def upgraded(self) -> StoredModel:
        """Return the same in the current format."""
        fields = msgspec.structs.asdict(self)
        storage = fields.pop("place")
        kind, comma, suffix = storage.partition(",")
        if kind == "arena":
            storage = f"memory{comma}{suffix}"
        return StoredModel(**fields, storage=storage)


class ExportV1(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An `Export` of version 1."""

    schema: str
    hetsched: str
    models: tuple[ModelV1, ...]

    def upgraded(self) -> Export:
        """Return the same in the current format, in the current order of keys."""
        models = sorted((model.upgraded() for model in self.models), key=lambda model: model.key)
        return Export(hetsched=self.hetsched, models=tuple(models))
