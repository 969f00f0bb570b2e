"""A disk in memory that loses at a power cut what wasn't synced, and fails on request. Pure.

What a cut keeps: everything synced; of the other writes, for each 512-byte sector independently,
some of its versions in order (so writes are torn and reordered across sectors, but no sector
returns to an older version than one that the disk already has). A new file may vanish and a
deleted one return until the folder has been synced.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import apsw

SECTOR = 512

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

    def write(self, offset: int, data: bytes) -> None:
        _apply(self.content, offset, data)
        self.unsynced.append((offset, data))

    def truncate(self, length: int) -> None:
        _apply(self.content, length, None)
        self.unsynced.append((length, None))

    def sync(self) -> None:
        for offset, data in self.unsynced:
            _apply(self.synced, offset, data)
        self.unsynced.clear()

    def forget_unsynced(self) -> None:
        """As Linux after a failed fsync: the pages count as written, and aren't."""
        self.unsynced.clear()

    def after_cut(self, rng: random.Random) -> DiskFile:
        survivor = bytearray(self.synced)
        versions: dict[int, int] = {}
        pieces = [_sectors(offset, data) for offset, data in self.unsynced]
        for sectors in pieces:
            for sector, _, _ in sectors:
                versions[sector] = versions.get(sector, 0) + 1
        kept = {sector: rng.randint(0, count) for sector, count in versions.items()}
        for (length, data), sectors in zip(self.unsynced, pieces, strict=True):
            if data is None:
                if rng.random() < 0.5:
                    _apply(survivor, length, None)
                continue
            for sector, offset, part in sectors:
                if kept[sector] > 0:
                    kept[sector] -= 1
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
        self._operate("create")
        self._new.add(name)
        self.files[name] = DiskFile()
        return self.files[name]

    def delete(self, name: str) -> None:
        self._operate("delete")
        file = self.files.pop(name)
        if name not in self._new:
            self._deleted[name] = file
        self._new.discard(name)

    def write(self, file: DiskFile, offset: int, data: bytes) -> None:
        self._operate("write")
        file.write(offset, data)

    def truncate(self, file: DiskFile, length: int) -> None:
        self._operate("truncate")
        file.truncate(length)

    def sync(self, file: DiskFile) -> None:
        try:
            self._operate("sync")
        except PowerLost:
            raise
        except Exception:
            file.forget_unsynced()
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

    def _operate(self, kind: str) -> None:
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
    if len(content) < offset:
        content.extend(bytes(offset - len(content)))
    content[offset : offset + len(data)] = data


def _sectors(offset: int, data: bytes | None) -> list[tuple[int, int, bytes]]:
    """Split a write at sector boundaries: (sector, offset, data)."""
    parts = []
    end = offset + len(data or b"")
    while data is not None and offset < end:
        size = min(SECTOR - offset % SECTOR, end - offset)
        start = len(data) - (end - offset)
        parts.append((offset // SECTOR, offset, data[start : start + size]))
        offset += size
    return parts
