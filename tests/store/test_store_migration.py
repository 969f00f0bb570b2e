"""Files of older versions load with equal models, however they are opened."""

import multiprocessing
import shutil
from pathlib import Path

import apsw
import msgspec
import pytest

from hetsched.models import DeviceModel
from hetsched.models.evidence.samples import Sample
from hetsched.store import database
from hetsched.store.models import models_db
from hetsched.store.models.catalogue import collect, forget, restore
from hetsched.store.models.export_format import Export
from hetsched.store.models.export_json import decode
from hetsched.store.models.model_store import ModelKey, ModelStore

DATA = Path(__file__).parent.parent / "data"
"""Written by versions 1 and 2: the same five models as a database and as an export."""
SPEED_KEY = "x:split:512x512:complex64 1"
GPU = ModelKey("fft", SPEED_KEY, "cupy", "13.4", "gpu0 NVIDIA H100", "memory")
CORE = [
    ModelKey("fft", SPEED_KEY, "pyfftw", "0.15", "cpu0 Some Processor", storage)
    for storage in ("file", "file, converted", "memory", "memory, converted")
]
KEYS = [GPU, *CORE]


@pytest.fixture(params=[1, 2])
def old(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A copy of a database of an older version."""
    path = tmp_path / "models.db"
    shutil.copy(DATA / f"models-v{request.param}.db", path)
    return path


def old_export(number: int = 1) -> Export:
    return decode((DATA / f"models-export-v{number}.json").read_bytes(), "old export")


def loaded(store: ModelStore, key: ModelKey) -> DeviceModel:
    model = store.load(key)
    assert model is not None
    return model


def version(path: Path) -> int:
    return int(apsw.Connection(str(path)).execute("PRAGMA user_version").get)


def check_models(store: ModelStore) -> None:
    """Assert what the version that wrote the file had predicted."""
    assert store.keys() == KEYS
    assert [store.runs(key) for key in KEYS] == [3, 3, 1, 3, 1]
    totals = [loaded(store, key).total.time(100) for key in KEYS]
    assert totals == pytest.approx([0.0723232143, 0.2693333333, 0.5, 0.2142, 0.3])
    gpu = loaded(store, GPU)
    phases = [gpu.compute, gpu.h2d, gpu.d2h, gpu.host_overhead]
    seconds = [phase.time(100) for phase in phases if phase is not None]
    assert seconds == pytest.approx([0.0101106670, 0.0303213341, 0.0353713341, 2.07330977e-4])
    assert gpu.duplex == pytest.approx((0.7507789537, 0.7783934785))


def test_an_old_file_is_migrated_and_has_equal_models(old: Path) -> None:
    assert version(old) < models_db.FORMAT.version

    store = ModelStore(old)

    check_models(store)
    store.close()
    assert version(old) == models_db.FORMAT.version
    check_models(ModelStore(old))


def test_a_migrated_file_takes_new_runs(old: Path) -> None:
    store = ModelStore(old)
    store.observe(CORE[0], [Sample("total", 500, 1.0)], 1.8e9)
    store.close()

    assert ModelStore(old).runs(CORE[0]) == 4


def test_reading_an_old_file_leaves_it_as_it_is(old: Path) -> None:
    old.chmod(0o400)
    before = old.read_bytes()

    check_models(ModelStore(old, copy=True))

    assert collect(old) == old_export()
    assert old.read_bytes() == before


@pytest.mark.parametrize("number", [1, 2])
def test_an_old_export_is_imported_with_equal_models(tmp_path: Path, number: int) -> None:
    path = tmp_path / "state" / "models.db"

    assert restore(path, old_export(number)).new == len(KEYS)

    check_models(ModelStore(path))
    assert collect(path).models == old_export(1).models


def test_an_old_file_has_nothing_new_in_its_own_old_export(old: Path) -> None:
    assert restore(old, old_export()).unchanged == len(KEYS)
    assert forget(old, lambda key: key.storage.startswith("memory")) == [GPU, *CORE[2:]]


def test_a_failed_migration_leaves_the_file_as_it_is(
    old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = old.read_bytes()
    last = models_db.FORMAT.version - 1
    broken = models_db.FORMAT.migrations[last] + "SELECT * FROM nowhere"
    monkeypatch.setitem(models_db.FORMAT.migrations, last, broken)  # type: ignore[arg-type]

    ModelStore(old).close()

    assert old.read_bytes() == before


def _learn_one(path: Path, seconds: float) -> None:
    database.BUSY_MS = 60_000  # for a machine that is busy with something else
    store = ModelStore(path)
    store.observe(GPU, [Sample("total", 56, seconds)], 1.8e9)
    store.close()


def test_processes_that_open_an_old_file_at_once_migrate_it_once(old: Path) -> None:
    spawn = multiprocessing.get_context("spawn")
    workers = [spawn.Process(target=_learn_one, args=(old, 0.04)) for _ in range(4)]

    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()

    assert [worker.exitcode for worker in workers] == [0] * 4
    store = ModelStore(old)
    assert (store.keys(), store.runs(GPU)) == (KEYS, 3 + 4)


def test_a_process_with_the_old_file_open_notices_the_migration(old: Path) -> None:
    """As a process of the old version does: what it reads next is of a newer version."""
    connection = apsw.Connection(str(old))
    before = database.data_version(connection)

    ModelStore(old).close()

    assert database.data_version(connection) != before
    assert connection.execute("PRAGMA user_version").get == models_db.FORMAT.version


def test_models_of_an_old_file_count_as_measured_beside_all_neighbours(old: Path) -> None:
    store = ModelStore(old)
    alone = msgspec.structs.replace(GPU, co_runners="none")
    store.observe(alone, [Sample("total", 56, 0.01)], 1.8e9)
    store.close()

    assert {key.co_runners for key in KEYS} == {"all"}
    assert [(m.key, m.runs) for m in collect(old).models if m.device == GPU.device] == [
        (GPU, 3),
        (alone, 1),
    ]
