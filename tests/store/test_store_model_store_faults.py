"""An unusable models.db: an error at the start; mid-run, learning goes on in memory."""

import logging
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from hetsched.models.races import Race
from hetsched.models.samples import Sample
from hetsched.store.model_records import ModelKey
from hetsched.store.model_store import ModelStore
from tests.store.learning import load, observe

KEY = ModelKey("fft", "512x512", "v", "1", "cpu0", "memory")


def file(folder: Path) -> Path:
    return folder / "models.db"


def learn(store: ModelStore, units: int, seconds: float) -> None:
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
    learn(store, 1, 1.0)


def broken(store: ModelStore, path: Path) -> None:
    path.write_bytes(b"not a database at all " * 2000)
    learn(store, 1, 1.0)


@pytest.mark.parametrize("harm", [full, read_only, broken])
def test_a_fault_mid_run_costs_one_warning_and_no_job(
    harm: Callable[[ModelStore, Path], None], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = ModelStore(file(tmp_path))
    learn(store, 10, 5.0)

    harm(store, file(tmp_path))
    learn(store, 20, 6.0)
    learn(store, 20, 6.0)

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
    learn(store, 10, 5.0)
    store.close()
    connection = apsw.Connection(str(file(tmp_path)))
    connection.execute(damage)
    connection.close()

    store = ModelStore(file(tmp_path))
    store.races(KEY.race_key)
    load(store, KEY)
    learn(store, 20, 6.0)
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

    learn(store, 20, 6.0)

    after = ModelStore(file(tmp_path))
    assert (after.runs(KEY), time_of(after, 1), time_of(after, 20)) == (2, 1.0, 6.0)
    assert store.runs(KEY) == 2


def test_a_file_that_is_not_a_database_is_set_aside(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file(tmp_path).write_bytes(b"precious " * 1000)

    store = ModelStore(file(tmp_path))
    learn(store, 10, 5.0)

    store.close()
    assert time_of(ModelStore(file(tmp_path)), 10) == 5.0
    (warning,) = warnings(caplog)
    assert "it is now" in warning
    assert Path(f"{file(tmp_path)}.unreadable-1").read_bytes() == b"precious " * 1000


def test_a_foreign_database_is_left_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    foreign = apsw.Connection(str(file(tmp_path)))
    foreign.execute("CREATE TABLE model(x)")

    store = ModelStore(file(tmp_path))
    learn(store, 10, 5.0)

    assert time_of(store, 10) == 5.0
    assert foreign.execute("SELECT count(*) FROM sqlite_schema").get == 1
    assert len(warnings(caplog)) == 1
