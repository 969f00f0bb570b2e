"""Output to the terminal: result lines, tables, notes, JSON; files that are to be written."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import msgspec

from hetsched.errors import IOFailure, Unavailable, UsageError
from hetsched.text import clean, clean_json


def out(line: str) -> None:
    """Print a line of the result on standard output, with control characters escaped.

    Raises IOFailure: the disk behind it is full. Of a closed pipe BrokenPipeError, for `main`.
    """
    with _output_errors():
        sys.stdout.write(f"{clean(line)}\n")


def flush_lines() -> None:
    """Pass on what was printed, so that a reader behind a pipe sees it. Raises as `out`."""
    with _output_errors():
        sys.stdout.flush()


@contextlib.contextmanager
def _output_errors() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise IOFailure(f"standard output: {error.strerror}") from None


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
    out(clean_json(msgspec.json.encode(record).decode()))


def note(text: str) -> None:
    """Print one line on standard error; errors in doing so are ignored."""
    with contextlib.suppress(OSError, ValueError):
        print(clean(text), file=sys.stderr, flush=True)  # noqa: T201


def width() -> int | None:
    """Return the terminal's columns; None if standard output isn't a terminal."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def can_move_cursor() -> bool:
    return os.environ.get("TERM", "dumb") not in ("dumb", "unknown", "")


def check_plot(file: str, force: bool) -> None:
    """Check whether a picture can be written to `file`, before anything is computed.

    Raises UsageError (unknown format), Unavailable (no matplotlib), CantCreate.
    """
    from hetsched.plots import FORMATS
    from hetsched.store.output_files import check_output

    if picture_format(file) not in FORMATS:
        endings = ", ".join(f".{name}" for name in FORMATS)
        raise UsageError(f"--plot {file}: the name must end in one of {endings}")
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError:
        raise Unavailable(
            "--plot needs matplotlib, which isn't installed: pip install 'hetsched[plot]'"
        ) from None
    check_output(file, (), "uint8", force=force)


def picture_format(file: str) -> str:
    return Path(file).suffix.lower().lstrip(".")


def write_file(what: str, file: str, raw: bytes, force: bool, hint: str = "") -> None:
    """Write a file that was asked for by a flag. Raises CantCreate, IOFailure."""
    from hetsched.store.output_files import write_whole

    write_whole(file, raw, force)
    note(f"{what}: {file}{hint}")
