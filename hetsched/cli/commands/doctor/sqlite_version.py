"""The user_version of an SQLite file that another process may have open and locked.

Read from the file format (sqlite.org/fileformat2.html): the header of page 1, of which the
write-ahead log may have a newer copy. Nothing is opened by SQLite, so nothing is locked.
"""

from __future__ import annotations

import struct
from pathlib import Path

MAGIC = b"SQLite format 3\0"
HEADER_BYTES = 100
VERSION_AT = 60
WAL_HEADER_BYTES = 32
FRAME_HEADER_BYTES = 24
MAX_FRAMES = 20_000
"""Frames of the log that are looked at: more than the journal ever has. Arbitrary."""


def is_sqlite(path: Path) -> bool:
    """Return whether the file is an SQLite file or empty, as a new one is. Raises OSError."""
    with path.open("rb") as file:
        start = file.read(len(MAGIC))
    return start in (MAGIC, b"")


def user_version(path: Path) -> int | None:
    """Return the version; None if it can't be told. Raises OSError."""
    in_log = _version_in_log(path.with_name(f"{path.name}-wal"))
    if in_log is not None:
        return in_log
    with path.open("rb") as file:
        header = file.read(HEADER_BYTES)
    if len(header) < HEADER_BYTES or not header.startswith(MAGIC):
        return None
    return int(struct.unpack_from(">i", header, VERSION_AT)[0])


def _version_in_log(path: Path) -> int | None:
    """Return the version in the last copy of page 1 that belongs to the present log."""
    if not path.exists():
        return None
    version = None
    with path.open("rb") as file:
        header = file.read(WAL_HEADER_BYTES)
        if len(header) < WAL_HEADER_BYTES:
            return None
        page_size = struct.unpack_from(">I", header, 8)[0]
        salt = header[16:24]
        for index in range(MAX_FRAMES):
            file.seek(WAL_HEADER_BYTES + index * (FRAME_HEADER_BYTES + page_size))
            frame = file.read(FRAME_HEADER_BYTES + HEADER_BYTES)
            if len(frame) < FRAME_HEADER_BYTES + HEADER_BYTES or frame[8:16] != salt:
                break
            page = frame[FRAME_HEADER_BYTES:]
            if struct.unpack_from(">I", frame)[0] == 1 and page.startswith(MAGIC):
                version = int(struct.unpack_from(">i", page, VERSION_AT)[0])
    return version
