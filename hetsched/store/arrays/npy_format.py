"""Headers of ``.npy`` files, parsed without evaluating any of their text.

Source: NumPy, `numpy.lib.format`, versions 1.0 to 3.0.
"""

from __future__ import annotations

import math
import os
import re
from dataclasses import dataclass

import numpy as np

from hetsched.errors import DataError, IOFailure

MAGIC = b"\x93NUMPY"
MAX_HEADER = 10_000
"""Bytes; NumPy's own limit. Real headers have 128."""
MAX_QUOTED = 60
"""Characters of an invalid header that a message quotes."""
MAX_DIGITS = 19
"""Digits of an extent: as many as 2**63 has."""
ALIGNMENT = 64
NUMERIC = "biufc"
"""NumPy's letters of the kinds of dtype that can be converted to what a kernel expects."""

_ENTRY = re.compile(
    r"""\s*(?P<quote>['"])(?P<key>\w+)(?P=quote)\s*:\s*
    (?:(?P<quote2>['"])(?P<text>[^'"\\]*)(?P=quote2)|(?P<flag>True|False)|(?P<tuple>\([^()]*\))|(?P<list>\[.*\]))
    \s*(?:,|$)""",
    re.VERBOSE | re.ASCII | re.DOTALL,
)
_SHAPE = re.compile(r"\(\s*(-?\d+L?\s*,\s*)*(-?\d+L?)?\s*\)", re.ASCII)


@dataclass(frozen=True)
class NpyHeader:
    """The array in a ``.npy`` file.

    Attributes
    ----------
    shape : tuple of int
    dtype : str
        NumPy's dtype string, byte order included ("<c8").
    order : "C" or "F"
    offset : int, bytes
        Start of the data.
    nbytes : int, bytes
        Size of the data alone.
    """

    shape: tuple[int, ...]
    dtype: str
    order: str
    offset: int
    nbytes: int


def read_header(path: str, fd: int) -> NpyHeader:
    """Read the header of the file behind `fd`; `path` is used in errors only.

    Raises
    ------
    DataError
        Not a ``.npy`` file of numbers, or not exactly as long as its header says.
    """
    size = os.fstat(fd).st_size
    text, offset = _header_text(path, fd, size)
    entries = _entries(path, text)
    dtype = _dtype(path, entries["descr"])
    shape = _shape(path, entries["shape"])
    if entries["fortran_order"] not in ("True", "False"):
        raise DataError(f"{path}: broken .npy header: fortran_order is neither True nor False")
    order = "F" if entries["fortran_order"] == "True" else "C"
    nbytes = math.prod(shape) * dtype.itemsize  # Python's integers don't overflow
    extents = "x".join(map(str, shape)) or "()"
    if nbytes == 0:
        raise DataError(f"{path}: holds no elements (shape {extents})")
    if offset + nbytes > size:
        raise DataError(
            f"{path}: its header says {extents} {dtype.name} ({nbytes} bytes),"
            f" the file has {size - offset}: truncated, or the header is wrong"
        )
    if offset + nbytes < size:
        raise DataError(
            f"{path}: has {size - offset - nbytes} bytes more than its header says"
            f" ({extents} {dtype.name}); several arrays in one file?"
        )
    return NpyHeader(shape, dtype.str, order, offset, nbytes)


def _header_text(path: str, fd: int, size: int) -> tuple[str, int]:
    """Return the header's text, and the offset of the data."""
    if size == 0:
        raise DataError(f"{path}: is empty, not a .npy file")
    start = _read(path, fd, 12, 0)
    if not start.startswith(MAGIC):
        pickled = start[:1] == b"\x80"
        kind = "a pickle, which is never loaded" if pickled else "not a .npy file (wrong magic)"
        raise DataError(f"{path}: is {kind}; numpy.save() writes a .npy file")
    if len(start) < 12 or start[6] not in (1, 2, 3):
        version = start[6] if len(start) > 6 else "?"
        raise DataError(
            f"{path}: .npy version {version}, or truncated; versions 1.0 to 3.0 can be read"
        )
    width = 2 if start[6] == 1 else 4
    length = int.from_bytes(start[8 : 8 + width], "little")
    offset = 8 + width + length
    if length > MAX_HEADER:
        raise DataError(f"{path}: .npy header of {length} bytes; at most {MAX_HEADER} are read")
    raw = _read(path, fd, length, 8 + width)
    if len(raw) < length:
        raise DataError(f"{path}: truncated in its .npy header ({size} bytes in all)")
    try:
        return raw.decode("utf-8" if start[6] == 3 else "latin-1"), offset
    except UnicodeDecodeError:
        raise DataError(f"{path}: broken .npy header: not UTF-8") from None


def _entries(path: str, text: str) -> dict[str, str]:
    """Parse the three entries, as text, without evaluating them."""
    body = text.strip()
    entries: dict[str, str] = {}
    position, end = 1, len(body) - 1
    while body[:1] == "{" and body[-1:] == "}" and body[position:end].strip():
        match = _ENTRY.match(body, position, end)
        if match is None or match["key"] in entries:
            break
        value = next(match[k] for k in ("text", "flag", "tuple", "list") if match[k] is not None)
        entries[match["key"]] = value
        position = match.end()
    else:
        if entries.keys() == {"descr", "fortran_order", "shape"}:
            return entries
    raise DataError(
        f"{path}: broken .npy header {body[:MAX_QUOTED]!r}:"
        " needs a dict of descr, fortran_order and shape"
    )


def _dtype(path: str, text: str) -> np.dtype[np.generic]:
    if text.startswith("["):
        raise DataError(
            f"{path}: holds records {text[:MAX_QUOTED]!r}; only plain numbers are supported"
        )
    if not re.fullmatch(r"[<>|=]?[a-zA-Z]\d{0,4}", text, re.ASCII):
        raise DataError(f"{path}: broken .npy header: dtype {text[:MAX_QUOTED]!r}")
    if text.lstrip("<>|=")[0] == "O":
        raise DataError(f"{path}: holds pickled Python objects, which are never loaded")
    try:
        dtype = np.dtype(text)
    except (TypeError, ValueError):
        raise DataError(f"{path}: broken .npy header: dtype {text!r}") from None
    if dtype.kind not in NUMERIC:
        raise DataError(f"{path}: holds {dtype.name}; only numbers are supported")
    return dtype


def _shape(path: str, text: str) -> tuple[int, ...]:
    if not _SHAPE.fullmatch(text):
        raise DataError(f"{path}: broken .npy header: shape {text[:MAX_QUOTED]!r}")
    numbers = re.findall(r"-?\d+", text, re.ASCII)
    if any(number.startswith("-") for number in numbers):
        raise DataError(
            f"{path}: its header says shape {text[:MAX_QUOTED]}: an extent can't be negative"
        )
    if any(len(number) > MAX_DIGITS for number in numbers):
        raise DataError(f"{path}: its header says shape {text[:MAX_QUOTED]}: no file is so large")
    return tuple(int(number) for number in numbers)


def _read(path: str, fd: int, count: int, offset: int) -> bytes:
    try:
        return os.pread(fd, count, offset)
    except OSError as error:
        raise IOFailure(f"{path}: {error.strerror}") from None


def npy_prefix(shape: tuple[int, ...], dtype: str) -> bytes:
    """Return the bytes before the data of a C-ordered ``.npy`` file, version 1.0."""
    extents = ", ".join(map(str, shape)) + ("," if len(shape) == 1 else "")
    descr = np.dtype(dtype).str
    text = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': ({extents}), }}"
    length = -(-(10 + len(text) + 1) // ALIGNMENT) * ALIGNMENT - 10
    return MAGIC + b"\x01\x00" + length.to_bytes(2, "little") + f"{text:<{length - 1}}\n".encode()
