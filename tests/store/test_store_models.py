from __future__ import annotations

import json
import logging
import multiprocessing
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from hetsched.errors import DataError
from hetsched.models import DeviceModel
from hetsched.models.history import History
from hetsched.models.races import MAX_RACES, Race
from hetsched.models.samples import Sample
from hetsched.store import database
from hetsched.store.model_records import (
    SCHEMA,
    Export,
    ModelKey,
    StoredModel,
    collect,
    decode,
    encode,
    forget,
    restore,
)
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


def file(folder: Path) -> Path:
    return folder / "models.db"


def learn_units(store: ModelStore, units: int, seconds: float) -> None:
    observe(store, KEY, [Sample("total", units, seconds)], 1.0)


def time_of(store: ModelStore, units: int) -> float | None:
    model = load(store, KEY)
    return None if model is None else float(model.time(units))


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]


def full(store: ModelStore, path: Path) -> None:
    assert store._connection is not None
    store._connection.execute("PRAGMA max_page_count = 1")
    # Pages that are there stay; what is added needs a new one.
    others = [ModelKey("fft", str(i), "v", "1", "cpu0", "memory") for i in range(40)]
    store.observe_many([(key, [Sample("total", 1, 1.0)]) for key in others], 1.0)
    store.flush()


def read_only(store: ModelStore, path: Path) -> None:
    assert store._connection is not None
    store._connection.execute("PRAGMA query_only = ON")
    learn_units(store, 1, 1.0)


def overwritten(store: ModelStore, path: Path) -> None:
    path.write_bytes(b"not a database at all " * 2000)
    learn_units(store, 1, 1.0)


@pytest.mark.parametrize("harm", [full, read_only, overwritten])
def test_a_fault_mid_run_costs_one_warning_and_no_job(
    harm: Callable[[ModelStore, Path], None], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = ModelStore(file(tmp_path))
    learn_units(store, 10, 5.0)

    harm(store, file(tmp_path))
    learn_units(store, 20, 6.0)
    learn_units(store, 20, 6.0)

    assert time_of(store, 10) == 5.0
    assert time_of(store, 20) == 6.0
    assert KEY in store.keys()  # noqa: SIM118
    store.close()
    assert len(warnings(caplog)) == 1
    assert "stay in memory" in warnings(caplog)[0]


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
    damage: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = ModelStore(file(tmp_path))
    store.add_race(KEY.race_key, Race(0, 10.0, {"a": (1.0,), "b": (2.0,)}))
    learn_units(store, 10, 5.0)
    store.close()
    connection = apsw.Connection(str(file(tmp_path)))
    connection.execute(damage)
    connection.close()

    store = ModelStore(file(tmp_path))
    store.races(KEY.race_key)
    load(store, KEY)
    learn_units(store, 20, 6.0)
    store.keys()

    assert time_of(store, 20) == 6.0
    store.close()
    assert len(warnings(caplog)) == 1


def test_unwritten_runs_are_written_later(tmp_path: Path) -> None:
    store = ModelStore(file(tmp_path))
    read_only(store, file(tmp_path))
    assert ModelStore(file(tmp_path)).keys() == []
    assert store._connection is not None
    store._connection.execute("PRAGMA query_only = OFF")

    learn_units(store, 20, 6.0)

    after = ModelStore(file(tmp_path))
    assert (after.runs(KEY), time_of(after, 1), time_of(after, 20)) == (2, 1.0, 6.0)
    assert store.runs(KEY) == 2


def test_a_foreign_database_is_left_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    foreign = apsw.Connection(str(file(tmp_path)))
    foreign.execute("CREATE TABLE model(x)")

    store = ModelStore(file(tmp_path))
    learn_units(store, 10, 5.0)

    assert time_of(store, 10) == 5.0
    assert foreign.execute("SELECT count(*) FROM sqlite_schema").get == 1
    assert len(warnings(caplog)) == 1


def key(number: int) -> ModelKey:
    return ModelKey("w", f"size {number}", "v", "1", "cpu0 Some Processor", "memory")


def learn_number(store: ModelStore, number: int) -> None:
    samples = [Sample("total", units, units * 1e-3) for units in range(1, 20)]
    observe(store, key(number), samples, float(number))


def test_memory_stays_within_the_limit_and_nothing_is_lost(tmp_path: Path) -> None:
    store = ModelStore(tmp_path / "models.db", max_bytes=100_000)
    for number in range(60):
        learn_number(store, number)
    assert store._histories.nbytes <= 100_000 and len(store._histories) < 30
    assert all(load(store, key(number)) is not None for number in range(60))
    assert store.runs(key(0)) == 1
    store.close()


def test_the_file_forgets_what_was_observed_least_recently(tmp_path: Path) -> None:
    store = ModelStore(tmp_path / "models.db", max_bytes=100_000)
    for number in range(400):
        learn_number(store, number)
    kept = {found.speed_key for found in store.keys()}  # noqa: SIM118
    assert (tmp_path / "models.db").stat().st_size < 300_000
    assert "size 399" in kept and "size 0" not in kept and 50 < len(kept) < 400
    store.close()


SAMPLES = [Sample("total", 10, 1.0)]


def race(number: int, at: float = 1.0) -> Race:
    return Race(number, 10.0, {"mkl 1": (1.0, None), "ducc0 2": (1.5, 1.25)}, at)


def add(store: ModelStore, *races: Race) -> None:
    for new in races:
        store.add_race(KEY.race_key, new)
        observe(store, KEY, SAMPLES, 1.0)


def test_the_file_keeps_a_few_races_of_each_key(tmp_path: Path) -> None:
    store = ModelStore(tmp_path / "models.db")
    races = [race(number) for number in range(MAX_RACES + 4)]
    add(store, *races)
    store.close()

    assert ModelStore(tmp_path / "models.db").races(KEY.race_key).races == tuple(races[4:])


def test_an_import_brings_the_races_of_an_export_once(tmp_path: Path) -> None:
    first, second = tmp_path / "first" / "models.db", tmp_path / "second" / "models.db"
    for path, races in ((first, (race(1, 5.0),)), (second, (race(7),))):
        store = ModelStore(path)
        for new in races:
            store.add_race(KEY.race_key, new)
        observe(store, KEY, SAMPLES, 1.0)
        store.close()
    export = decode(encode(collect(first)), "x")

    restore(second, export)
    restore(second, export)

    record = ModelStore(second).races(KEY.race_key)
    assert record.races == (race(7), race(1, 5.0))
    assert [len(stored.races) for stored in collect(second).races] == [2]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "models.db"


def learn(path: Path, key: ModelKey, units: int, seconds: float, at: float = 1.0) -> None:
    store = ModelStore(path)
    observe(store, key, [Sample("total", units, seconds)], at)
    store.close()


def export_of(*keys: ModelKey, sizes: int = 1) -> Export:
    rows = [Sample("total", 1 + size, 1.0 + size, at=2.0) for size in range(sizes)]
    models = tuple(StoredModel.of(key, History(1, rows)) for key in keys)
    return Export(hetsched="0.1.0", models=models)


def medians(path: Path) -> dict[str, list[tuple[float, float]]]:
    """Device -> (units, median seconds)."""
    return {
        model.device.split(" ")[0]: [(knot.units, knot.seconds) for knot in model.knots("total")]
        for model in collect(path).models
    }


def test_reading_creates_no_file(path: Path) -> None:
    assert collect(path).models == ()
    assert forget(path, lambda key: True) == []
    assert not path.parent.exists()


def test_an_export_is_merged_with_the_stored_models(path: Path) -> None:
    learn(path, KEY, 10, 5.0)

    assert restore(path, export_of(KEY, OTHER)) == Counter(new=1, extended=1)
    assert medians(path) == {"cpu0": [(1, 1.0), (10, 5.0)], "cpu1": [(1, 1.0)]}
    assert restore(path, collect(path)) == Counter(unchanged=2)


def learnt(
    *observations: tuple[int, float, float], key: ModelKey = KEY, runs: int = 1
) -> StoredModel:
    """Totals, as (units, seconds, at)."""
    rows = [Sample("total", units, seconds, at=at) for units, seconds, at in observations]
    return StoredModel.of(key, History(runs, rows))


def export(*models: StoredModel) -> Export:
    return Export(hetsched="0.1.0", models=models)


def broken(**changes: object) -> bytes:
    """An export whose only model has other fields."""
    record = json.loads(encode(export(learnt((1, 2.0, 3.0)))))
    record["models"][0].update(changes)
    return json.dumps(record).encode()


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"", "not an export"),
        (b"PK\x03\x04", "not an export"),
        (b"\xff\xfe{}", "not an export"),
        (b"[]", "not an export"),
        (b"{}", "its schema is 'none'"),
        (b'{"schema": 7}', "not an export"),
        (b'{"schema": "hetsched.job/1"}', "'hetsched.job/1'"),
        (b'{"schema": "hetsched.models.export/one"}', "not an export"),
        (encode(export(learnt((1, 2.0, 3.0))))[:-9], "not an export"),
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
        (
            encode(export(learnt((1, 2.0, 3.0)), learnt((2, 2.0, 3.0)))),
            "2 records of one key",
        ),
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

    assert union.runs == 5
    assert [(entry.seconds, entry.at) for entry in union.observations] == [
        (5.0, 1.0), (6.0, 3.0), (5.0, 4.0)
    ]  # fmt: skip
    assert union.merged(second) is union
    assert union.merged(first) is union
