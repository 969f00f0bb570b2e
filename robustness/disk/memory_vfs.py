"""A VFS of SQLite whose files are on a `MemoryDisk`; it syncs folders when SQLite's own does."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from typing import Any

import apsw

from robustness.disk.memory_disk import DiskFile, MemoryDisk, PowerLost

_SYNC_FOLDER = (
    apsw.SQLITE_OPEN_MAIN_JOURNAL | apsw.SQLITE_OPEN_SUPER_JOURNAL | apsw.SQLITE_OPEN_WAL
)
"""Files whose first sync also syncs the folder."""
_names = itertools.count(1)


class MemoryFile:
    """An open file. Locks always succeed: there is one connection."""

    def __init__(self, disk: MemoryDisk, file: DiskFile, sync_folder: bool) -> None:
        self._disk, self._file, self._sync_folder = disk, file, sync_folder

    def xRead(self, amount: int, offset: int) -> bytes:
        return bytes(self._file.content[offset : offset + amount])

    def xWrite(self, data: bytes, offset: int) -> None:
        self._disk.write(self._file, offset, bytes(data))

    def xTruncate(self, size: int) -> None:
        self._disk.truncate(self._file, size)

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
    """Registered under `name` until `unregister`."""

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
        return MemoryFile(self._disk, file, bool(flags[0] & _SYNC_FOLDER))

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


__all__ = ["MemoryVFS", "PowerLost", "disk_full", "io_error", "mounted"]
