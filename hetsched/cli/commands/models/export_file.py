"""Reading an export from a file or from standard input."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from hetsched.errors import DataError

if TYPE_CHECKING:
    from hetsched.store.model_records import Export

STANDARD_INPUT = "-"
MAX_BYTES = 256 << 20
"""Largest export, enough for thousands of models. A larger file isn't one and is refused."""


def read(file: str) -> Export:
    """Read the export in `file`.

    Raises
    ------
    InputMissing, DataError, ConfigError
    """
    from hetsched.store.input_files import read_whole
    from hetsched.store.model_records import decode

    if file != STANDARD_INPUT:
        return decode(read_whole(file, MAX_BYTES), file)
    raw = sys.stdin.buffer.read(MAX_BYTES + 1)
    if len(raw) > MAX_BYTES:
        raise DataError(f"standard input: more than {MAX_BYTES} bytes; not an export of models")
    return decode(raw, "standard input")
