"""Files that coordinator and hosts see under the same path: rows of inputs and of results."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from hetsched import errors
from hetsched.hosts.channel import Place, bytes_of
from hetsched.hosts.grid_messages import Layout
from hetsched.paths import split_path
from hetsched.store.formats import open_array, open_regular


def place_in(array: np.memmap) -> Place:
    """Return where the rows of an array are that has just been created in a file."""
    path = os.fspath(array.filename or "")
    inode = Path(path).stat().st_ino
    return Place(path, inode, array.offset, str(array.dtype), array.shape[1:])


class RowFile:
    """Writes rows of a result, as others do to the same file. Methods raise IOFailure.

    Opened before they are computed: a late result goes to no later file of this name.
    """

    def __init__(self, place: Place) -> None:
        self._place, self._fd = place, -1
        with self._failures():
            # Write only: network file systems then send the bytes that were written, not whole
            # pages of which another host has written the rest.
            flags = os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            self._fd = os.open(place.path, flags)
            found = os.fstat(self._fd)
        if found.st_ino != place.inode or not stat.S_ISREG(found.st_mode):
            self.close()
            raise errors.IOFailure(f"{place.path}: is another file by now")

    @contextlib.contextmanager
    def _failures(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise errors.IOFailure(f"{self._place.path}: {error.strerror}") from None

    def fits(self, rows: np.ndarray) -> bool:
        return rows.dtype == self._place.dtype and rows.shape[1:] == self._place.shape

    def write(self, first: int, rows: np.ndarray) -> None:
        """Write rows that fit from row `first` on."""
        raw = bytes_of(np.ascontiguousarray(rows))
        offset = self._place.offset + first * (raw.nbytes // len(rows))
        with self._failures():
            while raw:
                count = os.pwrite(self._fd, raw, offset)
                raw, offset = raw[count:], offset + count

    def close(self) -> None:
        """A network file system may say only now that a disk is full."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            with self._failures():
                os.close(fd)


def read_rows(layout: Layout) -> np.ndarray:
    """Read rows of a file, which may have changed since.

    Raises DataError, InputMissing, IOFailure or Unavailable.
    """
    path, count = layout.path, layout.shape[0]
    with contextlib.ExitStack() as closers:
        found: Any = open_array(path, 0, closers)
        is_same = found.dtype == layout.dtype and found.shape[1:] == layout.shape[1:]
        is_mapped = isinstance(found, np.memmap)
        if (
            not is_same
            or found.shape[0] < layout.first + count
            or (is_mapped and not found.flags.c_contiguous)
        ):
            raise errors.DataError(f"{path}: isn't the coordinator's file, or has changed")
        if not is_mapped:
            rows: np.ndarray = found[layout.first : layout.first + count]
            return np.ascontiguousarray(rows, layout.dtype)
        # Read, not mapped: a file that is shortened meanwhile would be fatal.
        rows = np.empty(layout.shape, layout.dtype)
        try:
            with open(split_path(path).file, "rb") as file:
                file.seek(found.offset + layout.first * (rows.nbytes // count))
                if file.readinto(bytes_of(rows)) < rows.nbytes:
                    raise errors.DataError(f"{path}: has been shortened meanwhile")
        except OSError as error:
            raise errors.IOFailure(f"{path}: {error.strerror}") from None
    return rows


def absolute(path: str | os.PathLike[str]) -> str:
    """Return the path of an array, with the part of its file, as another process needs it."""
    return os.fspath(Path.cwd() / path)


def folder_of(path: str | os.PathLike[str]) -> Path:
    return Path(split_path(absolute(path)).file).parent


@contextlib.contextmanager
def token_in(folder: Path) -> Iterator[tuple[str, str]]:
    """Put a file into a folder, whose path and text show who sees it. Raises OSError."""
    text = secrets.token_hex(16)
    token = folder / f".hetsched-{text[:16]}"
    token.write_text(text, "utf-8")
    try:
        yield str(token), text
    finally:
        with contextlib.suppress(OSError):
            token.unlink()


def sees(path: str, text: str) -> bool:
    """Return whether the file is here and has that text."""
    try:
        with open(open_regular(path, "a file"), "rb") as file:
            return file.read(len(text) + 1) == text.encode()
    except (OSError, errors.HetschedError):
        return False
