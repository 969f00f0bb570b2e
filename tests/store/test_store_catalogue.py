"""models.db as people read and change it: all of it or nothing, and errors are raised."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from hetsched.errors import ConfigError
from hetsched.models.history import History
from hetsched.models.samples import Sample
from hetsched.store.model_records import (
    Export,
    ModelKey,
    StoredModel,
    collect,
    forget,
    restore,
)
from hetsched.store.model_store import ModelStore
from tests.store.learning import observe

KEY = ModelKey("fft", "512x512 complex64", "pyfftw", "0.15", "cpu0 Some Processor", "memory")
OTHER = ModelKey("fft", "512x512 complex64", "pyfftw", "0.15", "cpu1 Some Processor", "memory")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "models.db"


def learn(path: Path, key: ModelKey, units: int, seconds: float, at: float = 1.0) -> None:
    store = ModelStore(path)
    observe(store, key, [Sample("total", units, seconds)], at)
    store.close()


def export(*keys: ModelKey, sizes: int = 1) -> Export:
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

    assert restore(path, export(KEY, OTHER)) == Counter(new=1, extended=1)
    assert medians(path) == {"cpu0": [(1, 1.0), (10, 5.0)], "cpu1": [(1, 1.0)]}
    assert restore(path, collect(path)) == Counter(unchanged=2)


def foreign(path: Path) -> None:
    connection = apsw.Connection(str(path))
    connection.execute("CREATE TABLE notes(x)")
    connection.close()


def newer(path: Path) -> None:
    learn(path, KEY, 10, 5.0)
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA user_version = 99")
    connection.close()


@pytest.mark.parametrize(
    ("harm", "reason"),
    [
        (lambda path: path.write_bytes(b"precious " * 999), "not a database"),
        (foreign, "another program"),
        (newer, "newer hetsched .version 99"),
        (lambda path: path.mkdir(), "unable to open"),
    ],
)
@pytest.mark.parametrize(
    "action",
    [
        collect,
        lambda path: restore(path, export(KEY)),
        lambda path: forget(path, lambda key: True),
    ],
)
def test_an_unusable_file_is_an_error_and_is_left_alone(
    harm: Callable[[Path], object], reason: str, action: Callable[[Path], object], path: Path
) -> None:
    path.parent.mkdir()
    harm(path)
    before = path.read_bytes() if path.is_file() else b""

    with pytest.raises(ConfigError, match=reason) as caught:
        action(path)

    assert str(path) in str(caught.value)
    assert before == (path.read_bytes() if path.is_file() else b"")
