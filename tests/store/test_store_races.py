"""Races of variants in models.db: across processes, and in files of older versions."""

from pathlib import Path

from hetsched.models.races import MAX_RACES, Race
from hetsched.models.samples import Sample
from hetsched.store.model_records import ModelKey, collect, decode, encode, restore
from hetsched.store.model_store import ModelStore
from tests.store.learning import observe

KEY = ModelKey("fft", "512", "mkl", "1", "cpu0 Some Processor", "memory")
SAMPLES = [Sample("total", 10, 1.0)]


def race(number: int, at: float = 1.0) -> Race:
    return Race(number, 10.0, {"mkl 1": (1.0, None), "ducc0 2": (1.5, 1.25)}, at)


def add(store: ModelStore, *races: Race) -> None:
    for new in races:
        store.add_race(KEY.race_key, new)
        observe(store, KEY, SAMPLES, 1.0)


def test_races_outlive_the_process(tmp_path: Path) -> None:
    first = ModelStore(tmp_path / "models.db")
    add(first, race(1), race(4))
    first.close()

    record = ModelStore(tmp_path / "models.db").races(KEY.race_key)

    assert record.races == (race(1), race(4))


def test_the_file_keeps_a_few_races_of_each_key(tmp_path: Path) -> None:
    store = ModelStore(tmp_path / "models.db")
    add(store, *map(race, range(MAX_RACES + 4)))
    store.close()

    races = ModelStore(tmp_path / "models.db").races(KEY.race_key).races

    assert [found.number for found in races] == list(range(4, MAX_RACES + 4))


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
