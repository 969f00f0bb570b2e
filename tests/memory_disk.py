"""A disk in memory for SQLite, which loses at a power cut what wasn't synced, or fails on request.

What a cut keeps: everything synced; of the other writes, for each 512-byte sector independently,
some of its versions in order (so writes are torn and reordered across sectors, but no sector
returns to an older version than one that the disk already has). A new file may vanish and a
deleted one return until the folder has been synced.
"""

from __future__ import annotations

import contextlib
import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import apsw

SECTOR = 512
SYNC_FOLDER = apsw.SQLITE_OPEN_MAIN_JOURNAL | apsw.SQLITE_OPEN_SUPER_JOURNAL | apsw.SQLITE_OPEN_WAL
"""Files whose first sync also syncs the folder, as SQLite's own VFS does."""
_names = itertools.count(1)

Fault = Callable[[str], Exception | None]
"""Called before each operation with its kind: "write", "sync", "truncate", "create", "delete";
returns the error with which it fails."""


class PowerLost(apsw.IOError):
    """The power is off: every operation fails, which SQLite takes for an I/O error."""


@dataclass
class DiskFile:
    """`content`: as processes see it. `synced`: on the disk. `unsynced`: what lies between."""

    content: bytearray = field(default_factory=bytearray)
    synced: bytearray = field(default_factory=bytearray)
    unsynced: list[tuple[int, bytes | None]] = field(default_factory=list)
    """(offset, data) of a write; (length, None) of a truncation."""

    def change(self, offset: int, data: bytes | None) -> None:
        _apply(self.content, offset, data)
        self.unsynced.append((offset, data))

    def sync(self) -> None:
        for offset, data in self.unsynced:
            _apply(self.synced, offset, data)
        self.unsynced.clear()

    def after_cut(self, rng: random.Random) -> DiskFile:
        survivor = bytearray(self.synced)
        pieces = [_sectors(offset, data) for offset, data in self.unsynced]
        versions = Counter(offset // SECTOR for sectors in pieces for offset, _ in sectors)
        kept = {sector: rng.randint(0, count) for sector, count in versions.items()}
        for (length, data), sectors in zip(self.unsynced, pieces, strict=True):
            if data is None and rng.random() < 0.5:
                _apply(survivor, length, None)
            for offset, part in sectors:
                kept[offset // SECTOR] -= 1
                if kept[offset // SECTOR] >= 0:
                    _apply(survivor, offset, part)
        return DiskFile(bytearray(survivor), survivor)


class MemoryDisk:
    """Files by name. `operations` counts those that change something."""

    def __init__(self, fault: Fault = lambda kind: None) -> None:
        self.files: dict[str, DiskFile] = {}
        self.operations = 0
        self.fault = fault
        self.is_off = False
        self._new: set[str] = set()
        self._deleted: dict[str, DiskFile] = {}

    def create(self, name: str) -> DiskFile:
        self.operate("create")
        self._new.add(name)
        self.files[name] = DiskFile()
        return self.files[name]

    def delete(self, name: str) -> None:
        self.operate("delete")
        file = self.files.pop(name)
        if name not in self._new:
            self._deleted[name] = file
        self._new.discard(name)

    def sync(self, file: DiskFile) -> None:
        try:
            self.operate("sync")
        except PowerLost:
            raise
        except Exception:
            file.unsynced.clear()  # as on Linux: the pages count as written, and aren't
            raise
        file.sync()

    def sync_folder(self) -> None:
        self._new.clear()
        self._deleted.clear()

    def after_cut(self, rng: random.Random) -> MemoryDisk:
        """Return the disk as it is when the power is back."""
        disk = MemoryDisk()
        for name, file in self.files.items():
            if name not in self._new or rng.random() < 0.5:
                disk.files[name] = file.after_cut(rng)
        for name, file in self._deleted.items():
            if name not in self.files and rng.random() < 0.5:
                disk.files[name] = file.after_cut(rng)
        return disk

    def operate(self, kind: str) -> None:
        """Count an operation; raise its fault."""
        if self.is_off:
            raise PowerLost
        self.operations += 1
        error = self.fault(kind)
        if error is not None:
            self.is_off = isinstance(error, PowerLost)
            raise error


def _apply(content: bytearray, offset: int, data: bytes | None) -> None:
    """Write `data`; without data, cut the content to `offset` bytes."""
    if data is None:
        del content[offset:]
        return
    content.extend(bytes(max(0, offset - len(content))))
    content[offset : offset + len(data)] = data


def _sectors(offset: int, data: bytes | None) -> list[tuple[int, bytes]]:
    """Split a write at sector boundaries: (offset, data)."""
    end = offset + len(data or b"")
    bounds = [offset, *range((offset // SECTOR + 1) * SECTOR, end, SECTOR), end]
    return [(a, data[a - offset : b - offset]) for a, b in itertools.pairwise(bounds) if data]


class MemoryFile:
    """A file that SQLite has opened. Locks always succeed: there is one connection."""

    def __init__(self, disk: MemoryDisk, file: DiskFile, sync_folder: bool) -> None:
        self._disk, self._file, self._sync_folder = disk, file, sync_folder

    def xRead(self, amount: int, offset: int) -> bytes:
        return bytes(self._file.content[offset : offset + amount])

    def xWrite(self, data: bytes, offset: int) -> None:
        self._disk.operate("write")
        self._file.change(offset, bytes(data))

    def xTruncate(self, size: int) -> None:
        self._disk.operate("truncate")
        self._file.change(size, None)

    def xSync(self, flags: int) -> None:
        self._disk.sync(self._file)
        if self._sync_folder:
            self._disk.sync_folder()
            self._sync_folder = False

    def xFileSize(self) -> int:
        return len(self._file.content)

    def xClose(self) -> None:
        pass

    def xLock(self, level: int) -> None:
        pass

    def xUnlock(self, level: int) -> None:
        pass

    def xCheckReservedLock(self) -> bool:
        return False

    def xFileControl(self, op: int, pointer: int) -> bool:
        return False

    def xSectorSize(self) -> int:
        return 4096

    def xDeviceCharacteristics(self) -> int:
        return int(apsw.SQLITE_IOCAP_POWERSAFE_OVERWRITE)


class MemoryVFS(apsw.VFS):
    """SQLite's view of the disk, registered under `name` until `unregister`."""

    def __init__(self, disk: MemoryDisk) -> None:
        self.name = f"memory-{next(_names)}"
        self._disk = disk
        super().__init__(self.name, base="unix")

    def xFullPathname(self, name: str) -> str:
        return name

    def xAccess(self, name: str, flags: int) -> bool:
        return name in self._disk.files

    def xDelete(self, name: str, sync_folder: bool) -> None:
        if name not in self._disk.files:
            raise _error(apsw.IOError, apsw.SQLITE_IOERR_DELETE_NOENT)
        self._disk.delete(name)
        if sync_folder:
            self._disk.sync_folder()

    def xOpen(self, name: Any, flags: list[int]) -> MemoryFile:
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        file = self._disk.files.get(path)
        if file is None:
            if not flags[0] & apsw.SQLITE_OPEN_CREATE:
                raise apsw.CantOpenError("no such file")
            file = self._disk.create(path)
        flags[1] = flags[0]
        return MemoryFile(self._disk, file, bool(flags[0] & SYNC_FOLDER))

    def excepthook(self, kind: type, error: BaseException, trace: object) -> None:
        """Errors are injected; SQLite reports them by itself."""


def _error(kind: type[apsw.Error], extended: int) -> apsw.Error:
    error = kind("injected")
    error.extendedresult = extended  # type: ignore[attr-defined]
    return error


def disk_full() -> apsw.Error:
    return _error(apsw.FullError, apsw.SQLITE_FULL)


def io_error(kind: str) -> apsw.Error:
    """Return EIO of an operation of this kind."""
    extended = {
        "write": apsw.SQLITE_IOERR_WRITE,
        "sync": apsw.SQLITE_IOERR_FSYNC,
        "truncate": apsw.SQLITE_IOERR_TRUNCATE,
        "delete": apsw.SQLITE_IOERR_DELETE,
        "create": apsw.SQLITE_IOERR_ACCESS,
    }[kind]
    return _error(apsw.IOError, extended)


@contextlib.contextmanager
def mounted(disk: MemoryDisk) -> Iterator[str]:
    """Yield the name of a VFS for `disk`."""
    vfs = MemoryVFS(disk)
    try:
        yield vfs.name
    finally:
        vfs.unregister()
