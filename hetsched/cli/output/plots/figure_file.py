"""The file of a picture: its format, whether it can be written, and writing it.

matplotlib is the extra `plot`.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING

from hetsched.cli.output.new_file import check_new_file
from hetsched.errors import Unavailable, UsageError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = ("png", "svg", "pdf")
DOTS_PER_INCH = 150


def check(file: str, force: bool) -> None:
    """Check whether a picture can be written to `file`, before anything is computed.

    Raises
    ------
    UsageError
        Unknown format.
    Unavailable
        matplotlib isn't installed.
    CantCreate
        The file exists, is a directory, or its folder doesn't exist.
    """
    if _format(file) not in FORMATS:
        endings = ", ".join(f".{name}" for name in FORMATS)
        raise UsageError(f"--plot {file}: the name must end in one of {endings}")
    figure_class()
    check_new_file(file, force)


def figure_class() -> type[Figure]:
    """Return matplotlib's Figure. Raises Unavailable if it isn't installed."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise Unavailable(
            "--plot needs matplotlib, which isn't installed: pip install 'hetsched[plot]'"
        ) from None
    return Figure


def save(figure: Figure, file: str, force: bool) -> None:
    """Write `figure` to `file`, completely or not at all.

    Raises
    ------
    CantCreate, IOFailure
    """
    from hetsched.store.output_files import write_whole

    raw = io.BytesIO()
    figure.savefig(raw, format=_format(file), dpi=DOTS_PER_INCH)
    write_whole(file, raw.getvalue(), force)


def _format(file: str) -> str:
    return Path(file).suffix.lower().lstrip(".")
