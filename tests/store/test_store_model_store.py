"""The model store in this process, the next one, and a concurrent one."""

import multiprocessing
from pathlib import Path

import apsw
import pytest

from hetsched.models import DeviceModel
from hetsched.models.samples import Sample
from hetsched.store import database, model_records
from hetsched.store.model_records import ModelKey, forget
from hetsched.store.model_store import ModelStore
from tests.store.learning import load, observe

KEY = ModelKey("fft", "512x512 complex64", "pyfftw", "0.15", "cpu0 Some Processor", "memory")
OTHER = ModelKey("fft", "512x512 complex64", "pyfftw", "0.15", "cpu1 Some Processor", "memory")


def total(units: int, seconds: float) -> Sample:
    return Sample("total", units, seconds)


def model_of(store: ModelStore, key: ModelKey = KEY) -> DeviceModel:
    model = load(store, key)
    assert model is not None
    return model


def test_a_forgotten_model_can_be_learnt_again(tmp_path: Path) -> None:
    path = tmp_path / "models.db"
    store = ModelStore(path)
    store.observe_many([(KEY, [total(1, 1.0)]), (OTHER, [total(1, 2.0)])], 1.0)
    store.flush()
    assert forget(path, lambda key: key == KEY) == [KEY]

    assert (load(store, KEY), store.runs(KEY), store.keys()) == (None, 0, [OTHER])
    observe(store, KEY, [total(1, 9.0)], 2.0)

    assert (model_of(store).time(1), store.runs(KEY)) == (9.0, 1)


def test_two_stores_see_what_the_other_learns(tmp_path: Path) -> None:
    first, second = ModelStore(tmp_path / "models.db"), ModelStore(tmp_path / "models.db")
    assert load(second, KEY) is None

    observe(first, KEY, [total(10, 5.0)], 1.0)
    observe(second, KEY, [total(20, 6.0)], 1.0)

    for store in (first, second):
        assert model_of(store).total.points.tolist() == [[10.0, 5.0], [20.0, 6.0]]  # type: ignore[attr-defined]
        assert store.runs(KEY) == 2


def _learn(path: Path, first: int, count: int) -> None:
    database.BUSY_MS = 60_000  # for a machine that is busy with something else
    store = ModelStore(path)
    for i in range(count):
        key = ModelKey("fft", str(first + i), "v", "1", "cpu0", "memory")
        store.observe_many([(key, [total(1, 1.0)]), (KEY, [total(1 + i % 3, 1.0)])], 1.0)
        store.flush()
    store.close()


def test_processes_that_learn_concurrently_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "models.db"
    spawn = multiprocessing.get_context("spawn")
    workers = [spawn.Process(target=_learn, args=(path, 100 * i, 25)) for i in range(3)]

    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()

    assert [worker.exitcode for worker in workers] == [0, 0, 0]
    store = ModelStore(path)
    assert len(store.keys()) == 76
    assert store.runs(KEY) == 75


def test_what_was_learnt_survives_a_file_that_could_not_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "models.db"
    store = ModelStore(path)
    for _ in range(10):
        observe(store, KEY, [total(10, 1.0)], 1.0)

    def full(*arguments: object) -> None:
        raise apsw.FullError("database or disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(model_records, "used_bytes", full)  # before the commit
        for _ in range(5):
            observe(store, KEY, [total(10, 2.0)], 1.0)
    believed = model_of(store).time(10)
    assert believed > 1.5

    observe(store, KEY, [total(10, 2.0)], 1.0)
    assert model_of(store).time(10) > 1.5
    store.close()
    assert model_of(ModelStore(path)).time(10) > 1.5
