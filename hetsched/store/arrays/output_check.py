"""Checks whether an output file could be created, without creating it.

Its space isn't allocated until the job starts, so this is an estimate: free space, minus what
other waiting jobs will need.
"""

from __future__ import annotations

import errno
import math
import os
import resource
from collections.abc import Callable, Collection
from dataclasses import dataclass

import numpy as np

from hetsched.errors import CantCreate
from hetsched.store.arrays.npy_format import npy_prefix
from hetsched.store.arrays.output_files import checked_target
from hetsched.store.arrays.unnamed_file import creation_errors, open_folder
from hetsched.units import format_bytes


@dataclass(frozen=True)
class OutputClaim:
    """An output file that a waiting job will create.

    `path` is absolute, links resolved; `device` is the st_dev of its folder.
    """

    path: str
    device: int
    nbytes: int
    shape: tuple[int, ...]
    dtype: str


def check_output(
    path: str,
    shape: tuple[int, ...],
    dtype: str,
    *,
    force: bool = False,
    inputs: Collection[tuple[int, int]] = (),
    claimed: Callable[[int], int] = lambda device: 0,
) -> OutputClaim:
    """Check what `create_output` would, and return what the file will need.

    Parameters
    ----------
    claimed : callable
        st_dev -> bytes that waiting jobs will need on this device.

    Raises
    ------
    CantCreate
        It exists, its folder is missing or read-only, or there is no room.
    DataError
        It is one of `inputs`.
    """
    target, _ = checked_target(path, force, inputs)
    nbytes = len(npy_prefix(shape, dtype)) + math.prod(shape) * np.dtype(dtype).itemsize
    with creation_errors(path), open_folder(target) as folder:
        if not os.access(os.path.dirname(target), os.W_OK | os.X_OK):
            raise OSError(errno.EACCES, os.strerror(errno.EACCES))
        device = os.fstat(folder).st_dev
        disk = os.fstatvfs(folder)
    check_space(path, nbytes, disk.f_bfree * disk.f_frsize, claimed(device))
    return OutputClaim(target, device, nbytes, tuple(shape), dtype)


def check_space(path: str, nbytes: int, free: int, claimed: int = 0) -> None:
    """Raise CantCreate unless a file of `nbytes` may be written where so many bytes are free."""
    largest, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    if largest != resource.RLIM_INFINITY and nbytes > largest:
        raise CantCreate(
            f"{path}: no room for {format_bytes(nbytes)} (File too large: the limit is"
            f" {format_bytes(largest)}, see `ulimit -f`)"
        )
    if nbytes > free - claimed:
        waiting = f", {format_bytes(claimed)} of it for waiting jobs" if claimed else ""
        raise CantCreate(
            f"{path}: no room for {format_bytes(nbytes)} (No space left on device,"
            f" {format_bytes(free)} free{waiting}); choose another folder"
        )
