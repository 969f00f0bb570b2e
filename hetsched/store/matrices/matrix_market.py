"""Headers of Matrix Market files.

Source: Boisvert, Pozo & Remington, The Matrix Market Exchange Formats: Initial Design, NISTIR 5935
(1996).
"""

from __future__ import annotations

import re

from hetsched.errors import DataError
from hetsched.store.matrices.header import MAX_EXTENT, MatrixHeader

MAGIC = b"%%MatrixMarket"
MAX_HEADER = 1 << 20
"""Bytes of the header with its comments. Arbitrary; SuiteSparse's largest have some KiB."""
FIELDS = {
    "real": "float64",
    "double": "float64",
    "integer": "float64",
    "unsigned-integer": "float64",
    "pattern": "float64",
    "complex": "complex128",
}
"""Field -> what it is computed with; the entries of a pattern are 1."""
SYMMETRIES = ("general", "symmetric", "skew-symmetric", "hermitian")
MIN_ENTRY_BYTES = {"pattern": 4, "complex": 8}
"""Of the shortest line of an entry, "1 1" with its end; MIN_OTHER_BYTES for other fields."""
MIN_OTHER_BYTES = 6
MAX_QUOTED = 60


def parse_header(path: str, start: bytes, size: int) -> MatrixHeader:
    """Parse the first MAX_HEADER bytes of the file `path`, which has `size` bytes.

    Raises
    ------
    DataError
        Not such a header, or a file that is too short for what the header says.
    """
    lines = start.split(b"\n")
    kind, field, symmetry = _banner(path, lines[0])
    numbers, is_whole = _sizes(path, lines[1:])
    if not is_whole and len(start) < size:
        raise DataError(f"{path}: no line with the size in the first {MAX_HEADER} bytes")
    expected = 3 if kind == "coordinate" else 2
    if len(numbers) != expected or any(not 0 <= n < MAX_EXTENT for n in numbers):
        raise DataError(
            f"{path}: broken Matrix Market header: its sizes are {numbers}, not {expected} numbers"
        )
    if kind == "coordinate":
        return _sparse(path, numbers, field, symmetry, size)
    return _dense(path, numbers, field, symmetry, size)


def _banner(path: str, line: bytes) -> tuple[str, str, str]:
    words = line.decode("latin-1").strip().lower().split()
    if len(words) != 5 or words[1] != "matrix" or words[2] not in ("coordinate", "array"):
        raise DataError(
            f"{path}: broken Matrix Market header {line[:MAX_QUOTED].decode('latin-1')!r}: needs"
            " matrix, coordinate or array, a field and a symmetry"
        )
    if words[3] not in FIELDS or words[4] not in SYMMETRIES:
        raise DataError(
            f"{path}: Matrix Market field {words[3][:MAX_QUOTED]!r}, symmetry"
            f" {words[4][:MAX_QUOTED]!r}; supported: {', '.join(FIELDS)}; {', '.join(SYMMETRIES)}"
        )
    return words[2], words[3], words[4]


def _sizes(path: str, lines: list[bytes]) -> tuple[list[int], bool]:
    """Return the numbers of the first line that is no comment, and whether it has ended."""
    for position, line in enumerate(lines):
        text = line.strip()
        if text and not text.startswith(b"%"):
            if not re.fullmatch(rb"-?\d{1,19}(\s+-?\d{1,19})*", text):
                quoted = text[:MAX_QUOTED].decode("latin-1")
                raise DataError(f"{path}: broken Matrix Market header: sizes {quoted!r}")
            return [int(word) for word in text.split()], position < len(lines) - 1
    return [], False


def _sparse(path: str, numbers: list[int], field: str, symmetry: str, size: int) -> MatrixHeader:
    rows, columns, entries = numbers
    least = entries * MIN_ENTRY_BYTES.get(field, MIN_OTHER_BYTES) - 1
    if least > size:
        raise DataError(
            f"{path}: its header says {entries} entries, the file has {size} bytes: truncated, or"
            " the header is wrong"
        )
    if symmetry == "skew-symmetric":
        entries *= 2
    elif symmetry != "general":
        entries = 2 * entries - min(rows, entries)
    return MatrixHeader((rows, columns), FIELDS[field], entries)


def _dense(path: str, numbers: list[int], field: str, symmetry: str, size: int) -> MatrixHeader:
    rows, columns = numbers
    stored = rows * columns if symmetry == "general" else rows * (columns + 1) // 2
    if 2 * stored - 1 > size:
        raise DataError(
            f"{path}: its header says {rows}x{columns}, the file has {size} bytes: truncated, or"
            " the header is wrong"
        )
    if not stored:
        raise DataError(f"{path}: holds no elements ({rows}x{columns})")
    return MatrixHeader((rows,) if columns == 1 else (rows, columns), FIELDS[field])
