"""Models are bounded in bytes, in memory and in the file."""

from __future__ import annotations

from pathlib import Path

from hetsched.models.samples import Sample
from hetsched.store.model_records import ModelKey
from hetsched.store.model_store import ModelStore
from tests.store.learning import load, observe


def key(number: int) -> ModelKey:
    return ModelKey("w", f"size {number}", "v", "1", "cpu0 Some Processor", "memory")


def learn(store: ModelStore, number: int) -> None:
    samples = [Sample("total", units, units * 1e-3) for units in range(1, 20)]
    observe(store, key(number), samples, float(number))


def test_memory_stays_within_the_limit_and_nothing_is_lost(tmp_path: Path) -> None:
    store = ModelStore(tmp_path / "models.db", max_bytes=100_000)
    for number in range(60):
        learn(store, number)
    assert store._histories.nbytes <= 100_000 and len(store._histories) < 30
    assert all(load(store, key(number)) is not None for number in range(60))
    assert store.runs(key(0)) == 1
    store.close()


def test_the_file_forgets_what_was_observed_least_recently(tmp_path: Path) -> None:
    store = ModelStore(tmp_path / "models.db", max_bytes=100_000)
    for number in range(400):
        learn(store, number)
    kept = {found.speed_key for found in store.keys()}  # noqa: SIM118
    assert (tmp_path / "models.db").stat().st_size < 300_000
    assert "size 399" in kept and "size 0" not in kept and 50 < len(kept) < 400
    store.close()
