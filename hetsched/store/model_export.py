"""Exports of models as JSON, and ``models.db`` for the commands that inspect or change it.

Each model is exported with its key, its runs, and the raw observations, oldest first, as [curve,
units, seconds, seconds since the epoch, contended, chunks]. Fits aren't exported: the importing
side repeats them. Races of variants are exported with their key, as [run, units, paces, seconds
since the epoch].

Commands read the file as a whole, with every error raised. Running jobs use `ModelStore` instead,
which tolerates errors of the file.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import apsw
import msgspec

from hetsched import __version__
from hetsched.errors import CantCreate, ConfigError, DataError, TryAgain
from hetsched.paths import private_folder
from hetsched.store import database, model_records
from hetsched.store.database import DAMAGE, DatabaseFormat, transaction
from hetsched.store.model_records import ModelKey, RaceKey, Record, StoredModel, StoredRaces

KIND = "hetsched.models.export"
VERSION = 1
SCHEMA = f"{KIND}/{VERSION}"


class Export(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    schema: str = SCHEMA
    hetsched: str
    models: tuple[StoredModel, ...]
    races: tuple[StoredRaces, ...] = ()

    def races_of(self, models: Iterable[StoredModel]) -> tuple[StoredRaces, ...]:
        keys = {model.key.race_key for model in models}
        return tuple(races for races in self.races if races.key in keys)


class _ExportHeader(msgspec.Struct):
    schema: str = "none"


MAX_QUOTED = 60
"""Characters of an unknown schema that an error quotes."""


def encode(export: Export) -> bytes:
    return msgspec.json.encode(export) + b"\n"


def decode(raw: bytes, source: str) -> Export:
    """Read an export; `source` names it in errors."""
    try:
        schema = msgspec.json.decode(raw, type=_ExportHeader).schema
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DataError(f"{source}: not an export of hetsched models: {error}") from None
    kind, _, number = schema.partition("/")
    if kind != KIND or not number.isdecimal():
        raise DataError(
            f"{source}: not an export of hetsched models: its schema is {schema[:MAX_QUOTED]!r}"
        )
    if int(number) > VERSION:
        raise ConfigError(
            f"{source}: exported by a newer hetsched (format {number[:20]}, this one reads up to"
            f" {VERSION}); update hetsched"
        )
    try:
        export = msgspec.json.decode(raw, type=Export)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DataError(f"{source}: broken export: {error}") from None
    records: list[StoredModel | StoredRaces] = [*export.models, *export.races]
    counts = Counter[ModelKey | RaceKey](record.key for record in records)
    for key, count in counts.items():
        if count > 1:
            what = f"{key.workload} on {key.device}"
            raise DataError(f"{source}: broken export: {count} records of one key, {what}")
    return export


def collect(path: Path) -> Export:
    """Return all models in the file at `path`; none if there is no file, and none is created."""
    if not path.exists():
        return Export(hetsched=__version__, models=())
    with _connection(path, database.open_for_reading) as connection:
        return Export(
            hetsched=__version__,
            models=tuple(model_records.read_all(connection, StoredModel)),
            races=tuple(model_records.read_all(connection, StoredRaces)),
        )


@dataclass(frozen=True)
class ImportCounts:
    new: int
    extended: int
    unchanged: int


def restore(path: Path, export: Export) -> ImportCounts:
    """Add an export to the file at `path`, created if needed, completely or not at all."""
    private_folder(path.parent, "state folder")
    with _connection(path, database.open_database) as connection, transaction(connection):
        outcomes = Counter(_add(connection, model) for model in export.models)
        for races in export.races:
            _add(connection, races)
    return ImportCounts(outcomes["new"], outcomes["extended"], outcomes["unchanged"])


def _add(connection: apsw.Connection, record: Record) -> str:
    before = model_records.read(connection, record.key, type(record))
    after = record if before is None else before.merged(record)
    if after is before:
        return "unchanged"
    model_records.write(connection, after.key, after)
    return "new" if before is None else "extended"


def forget(path: Path, is_chosen: Callable[[ModelKey], bool]) -> list[ModelKey]:
    if not path.exists():
        return []
    with _connection(path, database.open_database) as connection, transaction(connection):
        chosen = [key for key in model_records.read_keys(connection, ModelKey) if is_chosen(key)]
        model_records.delete_models(connection, chosen)
    return sorted(chosen)


@contextlib.contextmanager
def _connection(
    path: Path, connect: Callable[[Path, DatabaseFormat], apsw.Connection]
) -> Iterator[apsw.Connection]:
    try:
        with contextlib.closing(connect(path, model_records.FORMAT)) as connection:
            yield connection
    except (apsw.BusyError, apsw.LockedError):
        raise TryAgain(f"{path}: another process is writing to it; try again") from None
    except (apsw.FullError, apsw.IOError) as error:
        raise CantCreate(f"{path}: {error}; nothing was changed; make room") from None
    except apsw.ReadOnlyError as error:
        raise ConfigError(f"{path}: {error}; make it writable") from None
    except DAMAGE as error:
        raise ConfigError(f"{path}: {error}; move it away to start afresh") from None
