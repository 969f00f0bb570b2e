"""Writes a WAL again as it can be read, so that no part of it is missing on the disk.

Needed after a failed fsync, also one of an earlier process: Linux then counts pages as written
that aren't. Writing the same bytes is harmless at any point of a power cut.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

import apsw

_CHUNK = 1 << 16
"""Bytes; SQLite's VFS writes at most 128 KiB at once."""
_OPEN = [apsw.SQLITE_OPEN_WAL | apsw.SQLITE_OPEN_READWRITE, 0]


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
