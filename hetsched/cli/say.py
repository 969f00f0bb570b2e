"""What goes to the terminal: text made harmless, columns, JSON lines."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import Any

import msgspec

from hetsched.errors import IOFailure


def clean(text: str) -> str:
    """`text` on one line, without what a terminal would obey: control and direction characters."""
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text
    )


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


def columns(header: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> list[str]:
    """A table as lines; all but the first `left` columns are numbers, to the right."""
    table = [[clean(cell) for cell in row] for row in (header, *rows)]
    widths = [max(len(row[i]) for row in table) for i in range(len(header))]
    return [
        "  ".join(
            cell.ljust(width) if i < left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in table
    ]


def seconds_column(values: Sequence[float | None]) -> list[str]:
    """Seconds with the same decimals in every row: three significant digits of the largest."""
    known = [v for v in values if v is not None and v > 0 and math.isfinite(v)]
    decimals = max(0, 2 - math.floor(math.log10(max(known)))) if known else 3
    return ["-" if v is None else f"{v:.{min(decimals, 9)}f}" for v in values]


def number(value: float | None) -> str:
    """Three significant digits or all before the point: "12.3", "9626"; never "1e+04"."""
    if value is None or not math.isfinite(value):
        return "-"
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"
