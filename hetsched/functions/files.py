"""New files for results of `map` and of hosts, which appear whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import math
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hetsched.errors import (
    NO_SPACE,
    CantCreate,
    DataError,
    HetschedError,
    IOFailure,
)
from hetsched.paths import FORMAT_NAMES, FORMATS, ZARR, split_path
from hetsched.store import formats
from hetsched.store.output_files import PreparedOutput, allocate, check_room, open_folder
from hetsched.store.stored import Target, reason_of

NO_PLACE = (errno.ENOENT, errno.EACCES, errno.ENOTDIR)


def is_path(value: Any) -> bool:
    return isinstance(value, str | os.PathLike)


class OutputFile:
    """A file that appears under its name once it is complete.

    Until then it is hidden beside it, with a record that its process keeps locked: what a process
    leaves that was killed is found, and replaced or completed.
    """

    def __init__(self, path: str | os.PathLike[str], force: bool = False) -> None:
        """`force`: replace an existing one. Raises CantCreate, DataError, Unavailable."""
        self._force = force
        place = split_path(path)
        self._place, self.path, self._suffix = place, Path(place.file), place.suffix
        if self._suffix not in FORMATS:
            raise DataError(f"{self.path}: its name must end with {FORMAT_NAMES}")
        formats.check_new(place)
        try:
            exists = self.path.exists()
        except OSError as error:  # such as a name that is too long
            raise self.failure(error) from error
        if exists and self.path.is_dir() and not formats.is_store(self.path):
            raise CantCreate(f"{self.path} is a folder, no Zarr store; choose another name")
        if exists and not force:
            raise CantCreate(f"{self.path} exists; remove it, or choose another name")
        self.hidden = self.path.with_name(f".{self.path.name}.part{self._suffix}")
        self._record_path = self.path.with_name(f".{self.path.name}.parts")
        self._flush: Callable[[], None] = lambda: None
        self.record = -1
        """Descriptor of the record, for `Progress`; -1: the file isn't being written."""
        self.offset = 0
        """Of the values in the file, bytes."""
        self._is_begun = False

    @property
    def has_chunks(self) -> bool:
        """Whether its chunks are files of their own, of which there shouldn't be too many."""
        return self._suffix == ".zarr"

    def create(self, shape: Sequence[int], dtype: np.dtype[Any], axis: int, granule: int) -> Any:
        """Return an array to write to: an ndarray or a `Target`. Raises CantCreate."""
        shape = tuple(map(int, shape))
        with self._failures(f"can't hold {dtype} {shape} as {self._suffix}"):
            self.lock()
            self._is_begun = True
            os.ftruncate(self.record, 0)
            self._remove()
            return self._create(shape, dtype, axis, granule)

    def reopen(self, shape: Sequence[int], dtype: np.dtype[Any], axis: int, offset: int) -> Any:
        """Return the array that an earlier process has created, its values from `offset` on."""
        self._is_begun = True
        with self._failures("can't be opened again"):
            if self._suffix == ".zarr":
                return Target(formats.library(ZARR).open_array(str(self.hidden), mode="r+"), axis)
            return self._mapped(tuple(shape), dtype, offset)

    @contextlib.contextmanager
    def _failures(self, what: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise self.failure(error) from error
        except HetschedError:
            raise
        except Exception as error:  # of the library that writes it: not all have all dtypes
            raise DataError(f"{self.path}: {what}: {reason_of(error)}") from error

    def lock(self) -> None:
        """Open the record. Raises CantCreate if another process, or thread, writes the file."""
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        while self.record < 0:
            fd = os.open(self._record_path, flags, 0o666)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(fd)
                raise CantCreate(
                    f"{self.path}: another call is writing it; wait for it, or choose another name"
                ) from None
            except OSError:  # a file system without locks
                pass
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(fd), os.lstat(self._record_path)):
                    self.record = fd
                    return
            os.close(fd)  # who had it locked before has removed it meanwhile

    def _create(
        self, shape: tuple[int, ...], dtype: np.dtype[Any], axis: int, granule: int
    ) -> Any:
        with open_folder(str(self.hidden.absolute())) as folder:
            check_room(str(self.path), folder, math.prod(shape) * dtype.itemsize)
        if self._suffix == ".zarr":
            zarr = formats.library(ZARR)
            chunks = (*shape[:axis], granule, *shape[axis + 1 :])
            array = zarr.create_array(str(self.hidden), shape=shape, dtype=dtype, chunks=chunks)
            return Target(array, axis)
        # Writing to a map of a file without all its space is a SIGBUS when the disk is full.
        with open(self.hidden, "x+b") as file:
            offset = formats.begin(self._place, file.fileno(), shape, dtype.str)
            nbytes = offset + math.prod(shape) * dtype.itemsize
            allocate(str(self.path), file.fileno(), nbytes)
        return self._mapped(shape, dtype, offset)

    def _mapped(self, shape: tuple[int, ...], dtype: np.dtype[Any], offset: int) -> np.ndarray:
        if not math.prod(shape):
            return np.empty(shape, dtype)
        array = np.memmap(self.hidden, dtype, "r+", offset, shape)
        self._flush, self.offset = array.flush, offset
        return array

    def commit(self) -> Path:
        """Give the file its name. Raises IOFailure, CantCreate."""
        try:
            self._flush()
            hidden, target = (path.absolute() for path in (self.hidden, self.path))
            inode = hidden.lstat().st_ino
            output = PreparedOutput(os.fsencode(hidden), os.fsencode(target), self._force, inode)
            output.publish(sync=False)
        except OSError as error:
            raise self.failure(error) from error
        self.discard()
        return self.path

    def discard(self) -> None:
        """Remove what there is of the file, unless it has its name by now.

        What another call has left stays if this one has failed before it wrote anything.
        """
        if self.record >= 0 and (self._is_begun or not os.path.lexists(self.hidden)):
            self._remove()
            self._record_path.unlink(missing_ok=True)
        self.keep()

    def keep(self) -> None:
        """Leave the file as it is, for a later process."""
        self._flush = lambda: None
        if self.record >= 0:
            os.close(self.record)
        self.record = -1

    def _remove(self) -> None:
        if self.hidden.is_dir() and not self.hidden.is_symlink():
            shutil.rmtree(self.hidden, ignore_errors=True)
        else:
            self.hidden.unlink(missing_ok=True)

    def failure(self, error: OSError) -> CantCreate | IOFailure:
        kind = CantCreate if error.errno in (*NO_SPACE, *NO_PLACE) else IOFailure
        return kind(f"{self.path}: {error.strerror or error}")
