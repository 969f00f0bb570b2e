"""``models.db`` as people look at it and change it: all of it at once, and every error is said.

`ModelStore` is for those who run jobs, which no trouble with the file may stop.
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
from hetsched.store import models_db
from hetsched.store.export_format import Export, Learnt, merged


def collect(path: Path) -> Export:
    """Everything that the file at `path` knows; nothing if there is none. Looking makes no file.

    Raises
    ------
    ConfigError, TryAgain
    """
    if not path.exists():
        return Export(hetsched=__version__, models=())
    with _using(path, models_db.existing) as database:
        found = models_db.everything(database)
    return Export(hetsched=__version__, models=tuple(Learnt.of(*one) for one in found))


@dataclass(frozen=True)
class Added:
    """How many models an import made, made larger, and had nothing new for."""

    new: int
    grown: int
    known: int


def restore(path: Path, export: Export) -> Added:
    """Add an export to the file at `path`, which is made if need be; all of it or nothing.

    Raises
    ------
    ConfigError, TryAgain, CantCreate
    """
    private_folder(path.parent, "state folder")
    with _using(path, models_db.connect) as database, models_db.transaction(database):
        found = {one[0]: Learnt.of(*one) for one in models_db.everything(database)}
        new = [one for one in export.models if one.key not in found]
        both = [(found[one.key], one) for one in export.models if one.key in found]
        grown = [after for mine, theirs in both if (after := merged(mine, theirs)) is not mine]
        for one in (*new, *grown):
            models_db.put(database, one.key, one.runs, one.rows)
        models_db.announce(database)
    return Added(len(new), len(grown), len(both) - len(grown))


def forget(path: Path, chosen: Callable[[models_db.ModelKey], bool]) -> list[models_db.ModelKey]:
    """Forget the models whose keys are `chosen`; these keys.

    Raises
    ------
    ConfigError, TryAgain, CantCreate
    """
    if not path.exists():
        return []
    with _using(path, models_db.connect) as database, models_db.transaction(database):
        gone = [key for key in models_db.keys(database) if chosen(key)]
        models_db.forget(database, gone)
    return sorted(gone)


@contextlib.contextmanager
def _using(path: Path, opened: Callable[[Path], apsw.Connection]) -> Iterator[apsw.Connection]:
    """A connection, closed at the end; what SQLite says as our errors."""
    try:
        with contextlib.closing(opened(path)) as database:
            yield database
    except (apsw.BusyError, apsw.LockedError):
        raise TryAgain(f"{path}: another process is writing to it; try again") from None
    except (apsw.FullError, apsw.IOError) as error:
        raise CantCreate(f"{path}: {error}; nothing was changed; make room") from None
    except apsw.ReadOnlyError as error:
        raise ConfigError(f"{path}: {error}; make it writable") from None
    except apsw.Error as error:
        raise ConfigError(f"{path}: {error}; move it away to start afresh") from None
