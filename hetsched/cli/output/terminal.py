"""What goes to the terminal: results, notes, JSON lines."""

from __future__ import annotations

import shutil
import sys
from typing import Any

import msgspec

from hetsched.errors import IOFailure
from hetsched.text import clean, columns, number, seconds_column

__all__ = ["clean", "columns", "note", "number", "out", "out_json", "seconds_column", "width"]


def out(text: str) -> None:
    """One line of result, on standard output.

    Raises
    ------
    IOFailure
        A full disk behind it. A closed pipe is a BrokenPipeError, which `main` knows.
    """
    try:
        sys.stdout.write(f"{text}\n".encode("utf-8", "backslashreplace").decode("utf-8"))
    except BrokenPipeError:
        raise
    except OSError as error:
        raise IOFailure(f"standard output: {error.strerror}") from None
    except UnicodeEncodeError:
        sys.stdout.write(ascii(text)[1:-1] + "\n")


def width() -> int | None:
    """Characters of a line of the terminal; None where standard output is none."""
    if not sys.stdout.isatty():
        return None
    return shutil.get_terminal_size().columns


def note(text: str) -> None:
    """One line for people, on standard error; never worth failing for."""
    try:
        print(clean(text), file=sys.stderr, flush=True)  # noqa: T201
    except UnicodeEncodeError:
        print(ascii(text)[1:-1], file=sys.stderr, flush=True)  # noqa: T201
    except (OSError, ValueError):
        return


def out_json(record: Any) -> None:
    """`record` as one JSON object on one line."""
    out(msgspec.json.encode(record).decode())
