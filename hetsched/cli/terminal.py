"""Output to the terminal: result lines, tables, notes, JSON; files that are to be written."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from hetsched.errors import CantCreate, IOFailure, Unavailable, UsageError
from hetsched.text import clean, clean_json


def out(line: str) -> None:
    """Print a line of the result on standard output, with control characters escaped.

    Raises IOFailure (the disk behind it is full. A closed pipe raises BrokenPipeError, which
    `main` handles).
    """
    line = clean(line)
    try:
        sys.stdout.write(f"{line}\n".encode("utf-8", "backslashreplace").decode("utf-8"))
    except BrokenPipeError:
        raise
    except OSError as error:
        raise IOFailure(f"standard output: {error.strerror}") from None
    except UnicodeEncodeError:
        sys.stdout.write(line.encode("ascii", "backslashreplace").decode("ascii") + "\n")


def out_lines(lines: Iterable[str]) -> None:
    for line in lines:
        out(line)


def answer(json: bool, schema: str, record: Mapping[str, object], lines: Iterable[str]) -> None:
    """Print what a command has found: `record` as JSON, or `lines`."""
    if json:
        out_json({"schema": f"hetsched.{schema}", **record})
    else:
        out_lines(lines)


def out_json(record: msgspec.Struct | Mapping[str, object]) -> None:
    """Print `record` as one JSON object on one line."""
    out(clean_json(msgspec.json.encode(record).decode()))


def flush_lines() -> None:
    """Pass on what was printed, so that a reader behind a pipe sees it. Raises as `out`."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise IOFailure(f"standard output: {error.strerror}") from None


def note(text: str) -> None:
    """Print one line on standard error; errors in doing so are ignored."""
    try:
        print(clean(text), file=sys.stderr, flush=True)  # noqa: T201
    except UnicodeEncodeError:
        print(ascii(text)[1:-1], file=sys.stderr, flush=True)  # noqa: T201
    except (OSError, ValueError):
        return


def width() -> int | None:
    """Return the terminal's columns; None if standard output isn't a terminal."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def can_move_cursor() -> bool:
    """Whether the terminal, if there is one, can move its cursor."""
    return os.environ.get("TERM", "dumb") not in ("dumb", "unknown", "")


def check_new_file(file: str, force: bool) -> None:
    """Check whether `file` can be created, before anything is computed.

    Raises CantCreate (it exists and `force` isn't set, is no regular file, or its folder doesn't
    exist).
    """
    path = Path(file)
    if path.is_dir():
        raise CantCreate(f"{file}: is a directory; give the name of a file")
    if path.exists() and not path.is_file():
        raise CantCreate(f"{file}: not a regular file; give another name")
    if path.exists() and not force:
        raise CantCreate(f"{file}: exists; give another name, or replace it with --force")
    folder = path.absolute().parent
    if not folder.is_dir():
        raise CantCreate(f"{file}: there is no folder {folder}; create it first")


def check_plot(file: str, force: bool) -> None:
    """Check whether a picture can be written to `file`, before anything is computed.

    Raises UsageError (unknown format), Unavailable (no matplotlib), CantCreate.
    """
    from hetsched.plots import FORMATS

    if picture_format(file) not in FORMATS:
        endings = ", ".join(f".{name}" for name in FORMATS)
        raise UsageError(f"--plot {file}: the name must end in one of {endings}")
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError:
        raise Unavailable(
            "--plot needs matplotlib, which isn't installed: pip install 'hetsched[plot]'"
        ) from None
    check_new_file(file, force)


def picture_format(file: str) -> str:
    return Path(file).suffix.lower().lstrip(".")


def write_file(what: str, file: str, raw: bytes, force: bool, hint: str = "") -> None:
    """Write a file that was asked for by a flag. Raises CantCreate, IOFailure."""
    from hetsched.store.output_files import write_whole

    write_whole(file, raw, force)
    note(f"{what}: {file}{hint}")
