"""``models.db`` for commands that inspect or change it: read as a whole, with every error raised.

Running jobs use `ModelStore` instead, which tolerates errors of the file.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import apsw

from hetsched import __version__
from hetsched.errors import CantCreate, ConfigError, TryAgain
from hetsched.paths import private_folder
from hetsched.store.database import DAMAGE, transaction
from hetsched.store.models import models_db, race_table
from hetsched.store.models.export_format import (
    Export,
    StoredModel,
    StoredRaces,
    merged,
    merged_races,
)
from hetsched.store.models.models_db import ModelKey
from hetsched.store.models.race_table import RaceKey


def collect(path: Path) -> Export:
    """Return all models in the file at `path`; none if there is no file, and none is created.

    Raises
    ------
    ConfigError, TryAgain
    """
    if not path.exists():
        return Export(hetsched=__version__, models=())
    with _connection(path, models_db.open_models_for_reading) as connection:
        models = tuple(StoredModel.of(*model) for model in models_db.read_all(connection))
        races = _races(connection)
    return Export(
        hetsched=__version__, models=models, races=tuple(races[key] for key in sorted(races))
    )


@dataclass(frozen=True)
class ImportCounts:
    """How many models an import added, extended, and left as they were."""

    new: int
    extended: int
    unchanged: int


def restore(path: Path, export: Export) -> ImportCounts:
    """Add an export to the file at `path`, created if needed, completely or not at all.

    Raises
    ------
    ConfigError, TryAgain, CantCreate
    """
    private_folder(path.parent, "state folder")
    with _connection(path, models_db.open_models) as connection, transaction(connection):
        stored = {model[0]: StoredModel.of(*model) for model in models_db.read_all(connection)}
        new = [model for model in export.models if model.key not in stored]
        shared = [(stored[model.key], model) for model in export.models if model.key in stored]
        merges = [(before, merged(before, model)) for before, model in shared]
        extended = [after for before, after in merges if after is not before]
        for model in (*new, *extended):
            models_db.write_model(connection, model.key, model.runs, model.rows)
        _add_races(connection, export)
        models_db.count_rewrite(connection)
    return ImportCounts(len(new), len(extended), len(shared) - len(extended))


def forget(path: Path, is_chosen: Callable[[ModelKey], bool]) -> list[ModelKey]:
    """Delete the models whose keys are chosen, and return these keys.

    Raises
    ------
    ConfigError, TryAgain, CantCreate
    """
    if not path.exists():
        return []
    with _connection(path, models_db.open_models) as connection, transaction(connection):
        chosen = [key for key in models_db.read_keys(connection) if is_chosen(key)]
        models_db.delete_models(connection, chosen)
    return sorted(chosen)


def _races(connection: apsw.Connection) -> dict[RaceKey, StoredRaces]:
    rows = race_table.read_all_races(connection)
    return {key: StoredRaces.of(key, rows[key]) for key in rows}


def _add_races(connection: apsw.Connection, export: Export) -> None:
    stored = _races(connection)
    for races in export.races:
        before = stored.get(races.key)
        after = races if before is None else merged_races(before, races)
        if after is not before:
            race_table.write_races(connection, after.key, after.rows)


@contextlib.contextmanager
def _connection(
    path: Path, connect: Callable[[Path], apsw.Connection]
) -> Iterator[apsw.Connection]:
    """Open a connection and close it; translate SQLite's errors into ours."""
    try:
        with contextlib.closing(connect(path)) as connection:
            yield connection
    except (apsw.BusyError, apsw.LockedError):
        raise TryAgain(f"{path}: another process is writing to it; try again") from None
    except (apsw.FullError, apsw.IOError) as error:
        raise CantCreate(f"{path}: {error}; nothing was changed; make room") from None
    except apsw.ReadOnlyError as error:
        raise ConfigError(f"{path}: {error}; make it writable") from None
    except DAMAGE as error:
        raise ConfigError(f"{path}: {error}; move it away to start afresh") from None
