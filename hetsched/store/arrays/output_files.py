"""Writes output files, which appear complete or not at all.

Owns where an unfinished output is stored, and when it gets its name. Does not own the data, which
devices `pwrite` to the descriptor, starting at `offset`.
"""

from __future__ import annotations

import contextlib
import math
import os
import stat
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hetsched.errors import CantCreate, DataError
from hetsched.store.arrays.input_files import file_kind
from hetsched.store.arrays.npy_format import npy_prefix
from hetsched.store.arrays.publication import PreparedOutput, hidden_path, remove_leftover
from hetsched.store.arrays.safe_open import check_no_magic_links
from hetsched.store.arrays.unnamed_file import (
    UNSUPPORTED_LINK,
    allocate,
    creation_errors,
    fsync,
    new_token,
    open_folder,
    open_unnamed,
    umask,
)


@dataclass
class OutputFile:
    """An unfinished file: its space is allocated, and its data must be written to `fd`.

    End it with `publish`, `prepare` or `discard`. All close `fd`; `publish` and `discard` may be
    called again without effect.
    """

    fd: int
    offset: int
    path: str
    """The target, absolute, links resolved."""
    temporary: str | None
    """The hidden file, or None where the file has no name yet."""
    force: bool
    mode: int
    token: str
    """Determines the hidden name (`hidden_path`)."""

    def publish(self, sync: bool = True) -> None:
        """Give the complete file its name, atomically.

        `sync`: first wait until it is on disk, so that it survives a power cut.

        Raises
        ------
        CantCreate
            The target was created meanwhile, or its folder no longer exists.
        IOFailure
            The data can't be written to the disk.
        """
        if self.fd < 0:
            return
        try:
            os.fchmod(self.fd, self.mode)
            if sync:
                fsync(self.path, self.fd)
            self._name(sync)
        finally:
            self.discard()

    def prepare(self) -> PreparedOutput:
        """Write the complete file to disk under a hidden name, and close it.

        The caller now owns the file: `publish_prepared` or `discard_prepared` ends it.

        Raises
        ------
        CantCreate
            Its folder no longer exists or can't be written.
        IOFailure
            The data can't be written to the disk.
        """
        hidden = self.temporary or hidden_path(self.path, self.token)
        try:
            os.fchmod(self.fd, self.mode)
            with creation_errors(self.path), open_folder(self.path) as folder:
                if self.temporary is None:
                    self._link(hidden, folder)
                    self.temporary = hidden
                fsync(self.path, self.fd)
                fsync(self.path, folder)
            status = os.fstat(self.fd)
            self.temporary = None
        finally:
            self.discard()
        names = (os.fsencode(hidden), os.fsencode(self.path))
        return PreparedOutput(
            *names, self.force, status.st_ino, status.st_size, status.st_mtime_ns
        )

    def discard(self) -> None:
        """Remove the file, unless it was published."""
        if self.temporary is not None:
            with contextlib.suppress(OSError):
                Path(self.temporary).unlink()
        self.temporary = None
        if self.fd >= 0:
            os.close(self.fd)
        self.fd = -1

    def _name(self, sync: bool) -> None:
        with creation_errors(self.path), open_folder(self.path) as folder:
            if self.force:
                hidden = self.temporary or hidden_path(self.path, self.token)
                if self.temporary is None:
                    self._link(hidden, folder)
                    self.temporary = hidden
                Path(hidden).replace(self.path)
                self.temporary = None
            else:
                self._link(self.path, folder)
            if sync:
                fsync(self.path, folder)

    def _link(self, to: str, folder: int) -> None:
        """Link the file to its name, which fails if that exists; a rename would replace it.

        With a `dst_dir_fd` Python calls linkat, the only call that can follow /proc/self/fd.
        """
        source = self.temporary or f"/proc/self/fd/{self.fd}"
        try:
            os.link(source, Path(to).name, dst_dir_fd=folder, follow_symlinks=True)
        except OSError as error:
            if self.temporary is None or error.errno not in UNSUPPORTED_LINK:
                raise
            Path(self.temporary).rename(to)
            self.temporary = None


def create_output(
    path: str,
    shape: tuple[int, ...],
    dtype: str,
    force: bool = False,
    inputs: Collection[tuple[int, int]] = (),
    token: str = "",
) -> OutputFile:
    """Create an unfinished ``.npy`` file with its header written and all its space allocated.

    Parameters
    ----------
    path : str
    shape : tuple of int
    dtype : str
        Anything that `numpy.dtype` takes.
    force : bool
        Replace a file that exists.
    inputs : collection of (st_dev, st_ino)
        Files that must not be the output.
    token : str
        Determines the hidden name, if the file needs one; default: random. A file with the name
        of a given token is a leftover, and replaced.

    Raises
    ------
    CantCreate
        It exists, its folder is missing or read-only, or there is no room.
    DataError
        It is one of `inputs`.
    """
    target, mode = checked_target(path, force, inputs)
    if token:
        remove_leftover(target, token)
    token = token or new_token()
    with creation_errors(path):
        fd, temporary = open_unnamed(target, hidden_path(target, token))
    prefix = npy_prefix(shape, dtype)
    output = OutputFile(fd, len(prefix), target, temporary, force, mode, token)
    nbytes = len(prefix) + math.prod(shape) * np.dtype(dtype).itemsize
    try:
        allocate(path, fd, nbytes)
        with creation_errors(path):
            os.pwrite(fd, prefix, 0)
    except BaseException:
        output.discard()
        raise
    return output


def write_whole(path: str, raw: bytes, force: bool = False) -> None:
    """Write a file with exactly these bytes, completely or not at all.

    Raises
    ------
    CantCreate
        It exists, its folder is missing or read-only, or there is no room.
    IOFailure
    """
    target = os.path.realpath(path)
    mode = _target_mode(path, target, force, ())
    token = new_token()
    with creation_errors(path):
        fd, temporary = open_unnamed(target, hidden_path(target, token))
    output = OutputFile(fd, 0, target, temporary, force, mode, token)
    try:
        if raw:
            allocate(path, fd, len(raw))
        with creation_errors(path):
            written = 0
            while written < len(raw):
                written += os.pwrite(fd, raw[written:], written)
        output.publish()
    finally:
        output.discard()


def checked_target(
    path: str, force: bool, inputs: Collection[tuple[int, int]] = ()
) -> tuple[str, int]:
    """Return the file that a new one at `path` becomes or replaces, links resolved, and its mode.

    Raises CantCreate, DataError.
    """
    with creation_errors(path):
        check_no_magic_links(path)
    target = os.path.realpath(path)
    return target, _target_mode(path, target, force, inputs)


def _target_mode(path: str, target: str, force: bool, inputs: Collection[tuple[int, int]]) -> int:
    """Return the permissions of the new file: those of the one it replaces, else by the umask."""
    with creation_errors(path):
        try:
            existing = Path(target).stat()
        except FileNotFoundError:
            return 0o666 & ~umask()
    if (existing.st_dev, existing.st_ino) in inputs:
        raise DataError(f"{path}: is also the input; give the output another name")
    if not stat.S_ISREG(existing.st_mode):
        raise CantCreate(f"{path}: is {file_kind(existing.st_mode)}; give the name of a file")
    if not force:
        raise CantCreate(f"{path}: exists; give another name, or replace it with --force")
    return stat.S_IMODE(existing.st_mode) & 0o777
