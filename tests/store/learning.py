"""One model of a store: what is learnt is written at once."""

from __future__ import annotations

from collections.abc import Sequence

from hetsched.models import DeviceModel
from hetsched.models.samples import Sample
from hetsched.store.model_records import ModelKey
from hetsched.store.model_store import ModelStore


def observe(store: ModelStore, key: ModelKey, samples: Sequence[Sample], at: float) -> None:
    store.observe_many([(key, samples)], at)
    store.flush()


def load(store: ModelStore, key: ModelKey) -> DeviceModel | None:
    return store.load_many([key])[0]
