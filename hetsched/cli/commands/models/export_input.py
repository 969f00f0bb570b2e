"""An export from a file or from standard input."""

from __future__ import annotations

import sys
from typing import Any

from hetsched.errors import DataError

STANDARD_INPUT = "-"
MOST_BYTES = 256 << 20
"""Of an export: thousands of models. More is some other file, which needn't fill the memory."""


def read(file: str) -> Any:
    """The export in `file`.

    Raises
    ------
    InputMissing, DataError, ConfigError
    """
    from hetsched.store.array_files import read_whole
    from hetsched.store.export_json import decode

    if file != STANDARD_INPUT:
        return decode(read_whole(file, MOST_BYTES), file)
    raw = sys.stdin.buffer.read(MOST_BYTES + 1)
    if len(raw) > MOST_BYTES:
        raise DataError(f"standard input: over {MOST_BYTES} bytes, that is no export of models")
    return decode(raw, "standard input")
