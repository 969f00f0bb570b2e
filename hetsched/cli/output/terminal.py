"""Output to the terminal: result lines, notes, JSON."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping

import msgspec

from hetsched.errors import IOFailure
from hetsched.text import clean, clean_json, clean_lines, columns, number, seconds_column

__all__ = [
    "clean", "clean_json", "columns", "flush_lines", "is_interactive", "is_screen", "note",
    "number", "out", "out_json", "seconds_column", "width",
]  # fmt: skip


def out(text: str) -> None:
    """Print lines of the result on standard output, with control characters escaped.

    Raises
    ------
    IOFailure
        The disk behind it is full. A closed pipe raises BrokenPipeError, which `main` handles.
    """
    text = clean_lines(text)
    try:
        sys.stdout.write(f"{text}\n".encode("utf-8", "backslashreplace").decode("utf-8"))
    except BrokenPipeError:
        raise
    except OSError as error:
        raise IOFailure(f"standard output: {error.strerror}") from None
    except UnicodeEncodeError:
        sys.stdout.write(text.encode("ascii", "backslashreplace").decode("ascii") + "\n")


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
    if not sys.stdout.isatty():
        return None
    return shutil.get_terminal_size().columns


def is_screen() -> bool:
    """Whether standard output is a terminal that can be cleared."""
    return sys.stdout.isatty() and os.environ.get("TERM", "dumb") not in ("dumb", "unknown", "")


def is_interactive() -> bool:
    """Whether standard error is a terminal that can move its cursor, so that bars work."""
    return sys.stderr.isatty() and can_move_cursor()


def can_move_cursor() -> bool:
    """Whether the terminal, if there is one, can move its cursor."""
    return os.environ.get("TERM", "dumb") not in ("dumb", "unknown", "")
