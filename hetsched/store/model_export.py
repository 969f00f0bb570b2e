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
from hetsched.store.model_records import ModelKey, StoredModel, StoredRaces

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


def describe_key(key: ModelKey) -> str:
    beside = f"{key.co_runners} of its neighbours busy"
    return f"{key.workload} ({key.variant} {key.version}) on {key.device}, {key.storage}, {beside}"


def merged(first: StoredModel, second: StoredModel) -> StoredModel:
    """Merge two models of one key, by time; return `first` itself if `second` adds nothing.

    Observations in both count once. The number of runs is the larger of the two, since one of two
    histories of a machine is usually a continuation of the other.
    """
    first_counts, second_counts = Counter(first.observations), Counter(second.observations)
    runs = max(first.runs, second.runs)
    if second_counts <= first_counts and runs == first.runs:
        return first
    union = (first_counts | second_counts).elements()
    observations = tuple(sorted(union, key=lambda observation: observation.at))
    return msgspec.structs.replace(first, runs=runs, observations=observations)


def merged_races(first: StoredRaces, second: StoredRaces) -> StoredRaces:
    """Merge the races of one key, by time; return `first` itself if `second` adds nothing."""
    added = [race for race in second.races if race not in first.races]
    if not added:
        return first
    races = tuple(sorted((*first.races, *added), key=lambda race: race.at))
    return msgspec.structs.replace(first, races=races)


MAX_QUOTED = 60
"""Characters of an unknown schema that an error quotes."""


class _ExportHeader(msgspec.Struct):
    schema: str = ""


_decode_header = msgspec.json.Decoder(_ExportHeader).decode
_decode_export = msgspec.json.Decoder(Export).decode


def encode(export: Export) -> bytes:
    return msgspec.json.encode(export) + b"\n"


def decode(raw: bytes, source: str) -> Export:
    """Read an export; `source` names it in errors."""
    _check_version(raw, source)
    try:
        export = _decode_export(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DataError(f"{source}: broken export: {error}") from None
    if len({races.key for races in export.races}) < len(export.races):
        raise DataError(f"{source}: broken export: races of one key occur twice")
    counts = Counter(model.key for model in export.models)
    duplicates = [key for key, count in counts.items() if count > 1]
    if duplicates:
        raise DataError(f"{source}: broken export: two models of {describe_key(duplicates[0])}")
    return export


def _check_version(raw: bytes, source: str) -> None:
    try:
        schema = _decode_header(raw).schema
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DataError(f"{source}: not an export of hetsched models: {error}") from None
    kind, _, number = schema.partition("/")
    if kind != KIND or not number.isdecimal():
        reason = f"schema {schema[:MAX_QUOTED]!r}" if schema else "no schema in it"
        raise DataError(f"{source}: not an export of hetsched models: {reason}")
    if int(number) > VERSION:
        raise ConfigError(
            f"{source}: exported by a newer hetsched (format {number[:20]}, this one reads up to"
            f" {VERSION}); update hetsched"
        )


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
    new = extended = 0
    with _connection(path, database.open_database) as connection, transaction(connection):
        for model in export.models:
            before = model_records.read(connection, model.key, StoredModel)
            after = model if before is None else merged(before, model)
            if after is not before:
                kept = StoredModel.of(after.key, after.runs, after.observations)
                model_records.write(connection, kept)
            new += before is None
            extended += before is not None and after is not before
        for races in export.races:
            stored = model_records.read(connection, races.key, StoredRaces)
            union = races if stored is None else merged_races(stored, races)
            if union is not stored:
                model_records.write(connection, StoredRaces.of(union.key, union.races))
    return ImportCounts(new, extended, len(export.models) - new - extended)


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
