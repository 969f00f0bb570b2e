"""Check a file that a command is to write, before anything is computed."""

from __future__ import annotations

from pathlib import Path

from hetsched.errors import CantCreate


def check_new_file(file: str, force: bool) -> None:
    """Check whether `file` can be created.

    Raises
    ------
    CantCreate
        It exists and `force` isn't set, is a directory, or its folder doesn't exist.
    """
    path = Path(file)
    if path.is_dir():
        raise CantCreate(f"{file}: is a directory; give the name of a file")
    if path.exists() and not force:
        raise CantCreate(f"{file}: exists; give another name, or replace it with --force")
    folder = path.absolute().parent
    if not folder.is_dir():
        raise CantCreate(f"{file}: there is no folder {folder}; create it first")
