"""Checks where checkpoints are to be written, before a job runs for hours without one."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from hetsched.errors import CantCreate, DataError, InputMissing
from hetsched.store.arrays.output_check import check_space
from hetsched.store.arrays.publication import hidden_path
from hetsched.store.arrays.safe_open import check_no_magic_links
from hetsched.store.arrays.unnamed_file import creation_errors, new_token, open_unnamed
from hetsched.store.checkpoints.checkpoint_file import read_record
from hetsched.store.checkpoints.record import Problem, check_problem


def check_folder(path: str, nbytes: int) -> None:
    """Check that a file of `nbytes` can be created beside `path`, by creating one.

    The mode bits of a folder don't tell: a file system may be read-only, or full.

    Raises
    ------
    CantCreate
        The folder is missing, can't be written, or has no room.
    """
    target = os.path.realpath(path)
    with creation_errors(path):
        _check_parent(path)
        try:
            fd, hidden = open_unnamed(target, hidden_path(target, new_token()))
        except FileNotFoundError:  # the folder exists
            raise OSError(errno.EPERM, "no files can be created there") from None
    try:
        disk = os.fstatvfs(fd)
    finally:
        os.close(fd)
        if hidden is not None:
            Path(hidden).unlink(missing_ok=True)
    check_space(path, nbytes, disk.f_bfree * disk.f_frsize)


def check_target(path: str, problem: Problem | None) -> None:
    """Check that nothing but a checkpoint of this problem would be replaced at `path`.

    `problem`: None: not known yet; any checkpoint will do.

    Raises
    ------
    CantCreate
        There is a file that isn't a checkpoint of this problem, or there is no folder.
    """
    with creation_errors(path):
        _check_parent(path)
    try:
        record = read_record(path)
        if problem is not None:
            check_problem(path, record, problem)
    except InputMissing:
        if os.path.lexists(path):
            raise CantCreate(f"{path}: exists and can't be read; give another name") from None
    except DataError as error:
        raise CantCreate(f"{error}; it is not replaced: give another name") from None


def _check_parent(path: str) -> None:
    check_no_magic_links(path)
    if not Path(os.path.realpath(path)).parent.is_dir():
        raise FileNotFoundError
