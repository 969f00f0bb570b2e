"""Writes a WAL again as it can be read, so that no part of it is missing on the disk.

Needed after a failed fsync, also one of an earlier process: Linux then counts pages as written
that aren't. Writing the same bytes is harmless at any point of a power cut.
"""

from __future__ import annotations

import contextlib
import struct
from pathlib import Path

import apsw

_CHUNK = 1 << 16
"""Bytes; SQLite's VFS writes at most 128 KiB at once."""
_OPEN = [apsw.SQLITE_OPEN_WAL | apsw.SQLITE_OPEN_READWRITE, 0]
_HEADER, _FRAME_HEADER = 32, 24
_MAGICS = (0x377F0682, 0x377F0683)


def rewrite_wal(path: Path, vfs: str | None) -> bool:
    """Rewrite and sync the WAL of the database at `path`; return whether there was something.

    The caller holds the lock of the database, writes nothing before this, and opens the database
    again afterwards. Raises apsw.Error.
    """
    try:
        wal = apsw.VFSFile(vfs or apsw.vfs_names()[0], f"{path}-wal", list(_OPEN))
    except apsw.CantOpenError:
        return False  # there is none, or SQLite reports why it can't be opened
    with contextlib.ExitStack() as stack:
        stack.callback(wal.xClose)
        size = wal.xFileSize()
        for offset in range(0, size, _CHUNK):
            wal.xWrite(wal.xRead(min(_CHUNK, size - offset), offset), offset)
        if size:
            wal.xSync(apsw.SQLITE_SYNC_FULL)
    return size > 0


def has_lost_commits(wal: bytes, readable_frames: int) -> bool:
    """Return whether a WAL holds commits behind the frames that SQLite can read.

    A process that was killed leaves frames without their commit, which nobody was told of. A
    commit behind a hole is damage, or, after a power cut, one that wasn't acknowledged either.
    Source: SQLite, "WAL-mode File Format".
    """
    if len(wal) < _HEADER or not any(wal):
        return False
    magic, _, page_size, _, *salts = struct.unpack_from(">6I", wal)
    if magic not in _MAGICS or page_size < 512:
        return True
    size = _FRAME_HEADER + page_size
    frames = (len(wal) - _HEADER) // size
    for index in range(readable_frames, frames):
        _, pages, *frame_salts = struct.unpack_from(">4I", wal, _HEADER + index * size)
        if pages and frame_salts == salts:
            return True
    return False
