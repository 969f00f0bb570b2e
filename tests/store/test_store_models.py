from __future__ import annotations

import json
import logging
import multiprocessing
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import apsw
import pytest

from hetsched.errors import DataError
from hetsched.models.history import History
from hetsched.models.races import MAX_RACES, Race
from hetsched.models.samples import Sample
from hetsched.store import database
from hetsched.store.model_store import (
    SCHEMA,
    Export,
    ModelKey,
    ModelStore,
    StoredModel,
    collect,
    decode,
    encode,
    forget,
    restore,
)

KEY = ModelKey("fft", "512x512 complex64", "pyfftw", "0.15", "cpu0 Some Processor", "memory")
OTHER = ModelKey("fft", "512x512 complex64", "pyfftw", "0.15", "cpu1 Some Processor", "memory")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "models.db"


def total(units: int, seconds: float) -> Sample:
    return Sample("total", units, seconds)


def learn(
    store: ModelStore, *samples: Sample, key: ModelKey = KEY, races: Sequence[Race] = ()
) -> None:
    """Learn from a run, and write that at once."""
    for race in races:
        store.add_race(key.race_key, race)
    store.observe_many([(key, samples)], 1.0)
    store.flush()


def time_of(store: ModelStore, units: int, key: ModelKey = KEY) -> float | None:
    (model,) = store.load_many([key])
    return None if model is None else float(model.time(units))


def test_a_forgotten_model_can_be_learnt_again(path: Path) -> None:
    store = ModelStore(path)
    learn(store, total(1, 1.0))
    learn(store, total(1, 2.0), key=OTHER)
    assert forget(path, lambda key: key == KEY) == [KEY]

    assert (time_of(store, 1), store.runs(KEY), store.keys()) == (None, 0, [OTHER])
    learn(store, total(1, 9.0))

    assert (time_of(store, 1), store.runs(KEY)) == (9.0, 1)


def test_two_stores_see_what_the_other_learns(path: Path) -> None:
    first, second = ModelStore(path), ModelStore(path)
    assert time_of(second, 10) is None

    learn(first, total(10, 5.0))
    learn(second, total(20, 6.0))

    for store in (first, second):
        assert (time_of(store, 10), time_of(store, 20), store.runs(KEY)) == (5.0, 6.0, 2)


def _learn(path: Path, first: int, count: int) -> None:
    database.BUSY_MS = 60_000  # for a machine that is busy with something else
    store = ModelStore(path)
    for i in range(count):
        key = ModelKey("fft", str(first + i), "v", "1", "cpu0", "memory")
        store.observe_many([(key, [total(1, 1.0)]), (KEY, [total(1 + i % 3, 1.0)])], 1.0)
        store.flush()
    store.close()


def test_processes_that_learn_concurrently_lose_nothing(path: Path) -> None:
    spawn = multiprocessing.get_context("spawn")
    workers = [spawn.Process(target=_learn, args=(path, 100 * i, 25)) for i in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()

    assert [worker.exitcode for worker in workers] == [0, 0, 0]
    store = ModelStore(path)
    assert (len(store.keys()), store.runs(KEY)) == (76, 75)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]


def full(store: ModelStore, path: Path) -> None:
    store._connection.execute("PRAGMA max_page_count = 1")
    # Pages that are there stay; what is added needs a new one.
    others = [ModelKey("fft", str(i), "v", "1", "cpu0", "memory") for i in range(40)]
    store.observe_many([(key, [total(1, 1.0)]) for key in others], 1.0)
    store.flush()


def read_only(store: ModelStore, path: Path) -> None:
    store._connection.execute("PRAGMA query_only = ON")
    learn(store, total(1, 1.0))


def overwritten(store: ModelStore, path: Path) -> None:
    path.write_bytes(b"not a database at all " * 2000)
    learn(store, total(1, 1.0))


@pytest.mark.parametrize("harm", [full, read_only, overwritten])
def test_a_fault_mid_run_costs_one_warning_and_no_job(
    harm: Callable[[ModelStore, Path], None], path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = ModelStore(path)
    learn(store, total(10, 5.0))

    harm(store, path)
    learn(store, total(20, 6.0))
    learn(store, total(20, 6.0))

    assert (time_of(store, 10), time_of(store, 20), KEY in store.keys()) == (5.0, 6.0, True)  # noqa: SIM118
    store.close()
    (warning,) = warnings(caplog)
    assert "stay in memory" in warning


DAMAGE = (
    "UPDATE record SET value = replace(value, 'total', 'totel')",
    "UPDATE record SET value = CAST(x'ff' AS TEXT)",
    "UPDATE record SET value = replace(value, '5.0', '1e200')",
    "UPDATE record SET key = replace(key, 'all', 'nome') WHERE kind = 'model'",
    "UPDATE record SET value = '{\"a\": [1.0' WHERE kind = 'races'",
    "UPDATE record SET value = replace(value, '1.0', '-1.0') WHERE kind = 'races'",
)


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_values_cost_one_warning_and_no_job(
    damage: str, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = ModelStore(path)
    learn(store, total(10, 5.0), races=[Race(0, 10.0, {"a": (1.0,), "b": (2.0,)})])
    store.close()
    connection = apsw.Connection(str(path))
    connection.execute(damage)
    connection.close()

    store = ModelStore(path)
    store.races(KEY.race_key)
    time_of(store, 10)
    learn(store, total(20, 6.0))
    store.keys()

    assert time_of(store, 20) == 6.0
    store.close()
    assert len(warnings(caplog)) == 1


def test_unwritten_runs_are_written_later(path: Path) -> None:
    store = ModelStore(path)
    read_only(store, path)
    assert ModelStore(path).keys() == []
    store._connection.execute("PRAGMA query_only = OFF")

    learn(store, total(20, 6.0))

    after = ModelStore(path)
    assert (after.runs(KEY), time_of(after, 1), time_of(after, 20)) == (2, 1.0, 6.0)
    assert store.runs(KEY) == 2


def test_a_foreign_database_is_left_alone(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path.parent.mkdir(mode=0o700)
    foreign = apsw.Connection(str(path))
    foreign.execute("CREATE TABLE model(x)")

    store = ModelStore(path)
    learn(store, total(10, 5.0))

    assert time_of(store, 10) == 5.0
    assert foreign.execute("SELECT count(*) FROM sqlite_schema").get == 1
    assert len(warnings(caplog)) == 1


def learnt_often(path: Path, count: int) -> ModelStore:
    """A store of limited size that has learnt `count` models."""
    store = ModelStore(path, max_bytes=100_000)
    for number in range(count):
        learn(store, *(total(units, units * 1e-3) for units in range(1, 20)), key=key(number))
    return store


def key(number: int) -> ModelKey:
    return ModelKey("w", f"size {number}", "v", "1", "cpu0 Some Processor", "memory")


def test_memory_stays_within_the_limit_and_nothing_is_lost(path: Path) -> None:
    store = learnt_often(path, 60)

    assert store._histories.nbytes <= 100_000 and len(store._histories) < 30
    assert all(time_of(store, 1, key(number)) is not None for number in range(60))
    assert store.runs(key(0)) == 1


def test_the_file_forgets_what_was_observed_least_recently(path: Path) -> None:
    kept = {found.speed_key for found in learnt_often(path, 400).keys()}  # noqa: SIM118

    assert path.stat().st_size < 300_000
    assert "size 399" in kept and "size 0" not in kept and 50 < len(kept) < 400


def race(number: int, at: float = 1.0) -> Race:
    return Race(number, 10.0, {"mkl 1": (1.0, None), "ducc0 2": (1.5, 1.25)}, at)


def test_the_file_keeps_a_few_races_of_each_key(path: Path) -> None:
    races = [race(number) for number in range(MAX_RACES + 4)]
    learn(ModelStore(path), total(10, 1.0), races=races)

    assert ModelStore(path).races(KEY.race_key).races == tuple(races[4:])


def test_an_import_brings_the_races_of_an_export_once(tmp_path: Path) -> None:
    first, second = tmp_path / "first" / "models.db", tmp_path / "second" / "models.db"
    learn(ModelStore(first), total(10, 1.0), races=[race(1, 5.0)])
    learn(ModelStore(second), total(10, 1.0), races=[race(7)])
    export = decode(encode(collect(first)), "x")

    restore(second, export)
    restore(second, export)

    assert ModelStore(second).races(KEY.race_key).races == (race(7), race(1, 5.0))
    assert [len(stored.races) for stored in collect(second).races] == [2]


def test_reading_creates_no_file(path: Path) -> None:
    assert collect(path).models == ()
    assert forget(path, lambda key: True) == []
    assert not path.parent.exists()


def learnt(
    *observations: tuple[int, float, float], key: ModelKey = KEY, runs: int = 1
) -> StoredModel:
    """Totals, as (units, seconds, at)."""
    rows = [Sample("total", units, seconds, at=at) for units, seconds, at in observations]
    return StoredModel.of(key, History(runs, rows))


def export(*models: StoredModel) -> Export:
    return Export(hetsched="0.1.0", models=models)


def test_an_export_is_merged_with_the_stored_models(path: Path) -> None:
    learn(ModelStore(path), total(10, 5.0))
    other = export(learnt((1, 1.0, 2.0)), learnt((1, 1.0, 2.0), key=OTHER))

    assert restore(path, other) == Counter(new=1, extended=1)
    knots = [[(knot.units, knot.seconds) for knot in model.knots("total")]
             for model in collect(path).models]  # fmt: skip
    assert knots == [[(1, 1.0), (10, 5.0)], [(1, 1.0)]]
    assert restore(path, collect(path)) == Counter(unchanged=2)


def broken(**changes: object) -> bytes:
    """An export whose only model has other fields."""
    record = json.loads(encode(export(learnt((1, 2.0, 3.0)))))
    record["models"][0].update(changes)
    return json.dumps(record).encode()


TWICE = encode(export(learnt((1, 2.0, 3.0)), learnt((2, 2.0, 3.0))))


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"", "not an export"),
        (b"\xff\xfe{}", "not an export"),
        (b"[]", "not an export"),
        (b"{}", "its schema is 'none'"),
        (b'{"schema": 7}', "not an export"),
        (b'{"schema": "hetsched.job/1"}', "'hetsched.job/1'"),
        (b'{"schema": "hetsched.models.export/one"}', "not an export"),
        (TWICE[:-9], "not an export"),
        (f'{{"schema": "{SCHEMA}"}}'.encode(), "broken export.*hetsched"),
        (broken(runs=-1), "broken export"),
        (broken(runs=2**63), "broken export"),
        (broken(storage=3), "broken export"),
        (broken(colour="red"), "broken export.*colour"),
        (broken(observations=[["warp", 1, 2.0]]), r"broken export.*observations\[0\]"),
        (broken(observations=[["total", 0, 2.0]]), "broken export"),
        (broken(observations=[["total", 1, -2.0]]), "broken export"),
        (broken(observations=[["total", 1, 1e999]]), "not an export"),
        (broken(observations=[["total", 1]]), "broken export"),
        (broken(observations=[["total", 1, 2.0, 1, 1e300]]), "broken export"),
        (broken(observations=[["total", 1, 2.0, 1, -1.0]]), "broken export"),
        (TWICE, "2 records of one key"),
    ],
)
def test_anything_but_an_export_is_refused_in_one_line(raw: bytes, reason: str) -> None:
    with pytest.raises(DataError, match=f"^some file: .*{reason}") as caught:
        decode(raw, "some file")

    assert "\n" not in str(caught.value)


def test_merging_orders_by_time_and_counts_common_observations_once() -> None:
    first = learnt((10, 5.0, 1.0), (10, 5.0, 4.0), runs=2)
    second = learnt((10, 6.0, 3.0), (10, 5.0, 4.0), runs=5)

    union = first.merged(second)

    assert union == learnt((10, 5.0, 1.0), (10, 6.0, 3.0), (10, 5.0, 4.0), runs=5)
    assert union.merged(second) is union
    assert union.merged(first) is union
