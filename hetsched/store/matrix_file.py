"""What is known of a matrix from the beginning of its file: Matrix Market, or .npz.

Nothing is unpickled, and nothing is read whose size isn't known first: a small archive may claim
to hold terabytes.
"""

from __future__ import annotations

import errno
import io
import math
import mmap
import os
import signal
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO

import numpy as np

from hetsched.errors import DataError, HetschedError, IOFailure, TryAgain
from hetsched.store.input_files import MAGIC as NPY_MAGIC
from hetsched.store.input_files import NUMERIC, open_regular, parse_header
from hetsched.units import format_bytes

MARKET_MAGIC = b"%%MatrixMarket"
NPZ_MAGIC = b"PK"
GZIP_MAGIC = b"\x1f\x8b"
HOW_TO_SAVE = "a sparse matrix is needed, as scipy.sparse.save_npz and scipy.io.mmwrite save it"
MAX_HEADER = 1 << 20
"""Bytes of the header with its comments; SuiteSparse's largest have some KiB."""
MAX_INT32 = 2**31 - 1
MAX_EXTENT = 2**62
"""Rows or columns that a header may claim: more would overflow int64 arithmetic."""
MIN_ENTRY_BYTES = {"pattern": 4, "complex": 8}
"""Of the shortest line of an entry, "1 1" with its end; MIN_OTHER_BYTES for other fields."""
MIN_OTHER_BYTES = 6
MAX_MEMBERS = 64
"""SciPy writes at most six."""
MAX_SMALL_BYTES = 1 << 12
"""Bytes of the small members `format` and `shape`."""
FORMATS = ("csr", "csc", "bsr", "coo", "dia")
"""Of scipy.sparse.save_npz; the values of each are the member `data`."""

Shapes = dict[str, tuple[tuple[int, ...], str]]
"""Part of the input ("" for a dense array) -> (shape, dtype name)."""


@dataclass(frozen=True)
class MatrixHeader:
    """A matrix in a file; `dtype`: NumPy's name of what it is read as.

    `entries`: of a sparse matrix, once all that the file implies is stored: an estimate for
    symmetric ones, exact if their diagonal is full. None: a dense array.
    """

    shape: tuple[int, ...]
    dtype: str
    entries: int | None = None

    def sparse_shapes(self, path: str) -> Shapes:
        """Return the shapes of compressed sparse rows. Raises DataError if it isn't square."""
        if self.entries is None:
            raise DataError(f"{path}: holds a dense array; {HOW_TO_SAVE}")
        rows, columns = self.shape
        if rows != columns:
            raise DataError(f"{path}: holds a matrix of {rows}x{columns}; it must be square")
        if not self.entries:
            raise DataError(f"{path}: holds a matrix without entries")
        index = "int32" if max(self.entries, rows) <= MAX_INT32 else "int64"
        return {
            "data": ((self.entries,), self.dtype),
            "indices": ((self.entries,), index),
            "indptr": ((rows + 1,), index),
        }

    def dense_shape(self, path: str) -> Shapes:
        if self.entries is not None:
            raise DataError(f"{path}: holds a sparse matrix; a dense array is needed")
        return {"": (self.shape, self.dtype)}


def is_matrix_file(path: str) -> bool:
    try:
        fd = open_regular(path, "a file")
    except HetschedError:
        return False
    try:
        start = os.pread(fd, len(MARKET_MAGIC), 0)
    except OSError:
        return False
    finally:
        os.close(fd)
    return start.startswith((MARKET_MAGIC, NPZ_MAGIC, GZIP_MAGIC))


def read_matrix_header(path: str, fd: int) -> MatrixHeader:
    """Return what the file behind `fd` holds; `path` is used in errors only."""
    try:
        start = os.pread(fd, len(MARKET_MAGIC), 0)
        if start == MARKET_MAGIC:
            return _market_header(path, fd)
        if start.startswith(NPZ_MAGIC):
            with open(fd, "rb", closefd=False) as file:
                return _npz_header(path, file)
    except OSError as error:
        raise IOFailure(f"{path}: {error.strerror}") from None
    if start.startswith(NPY_MAGIC):
        raise DataError(f"{path}: holds a dense array; {HOW_TO_SAVE}")
    if start.startswith(GZIP_MAGIC):
        raise DataError(f"{path}: is compressed with gzip; decompress it first, with gunzip")
    raise DataError(
        f"{path}: is neither a Matrix Market file (scipy.io.mmwrite) nor an .npz file"
        " (scipy.sparse.save_npz)"
    )


# ---- Matrix Market


def _market_header(path: str, fd: int) -> MatrixHeader:
    import scipy.io  # 16 MiB that a daemon without such files doesn't need

    try:
        start = io.BytesIO(os.pread(fd, MAX_HEADER, 0))
        rows, columns, entries, kind, field, symmetry = scipy.io.mminfo(start)
    except (ValueError, OverflowError, TypeError) as error:
        raise DataError(f"{path}: broken Matrix Market header: {str(error)[:200]}") from None
    if max(rows, columns, entries) >= MAX_EXTENT:
        raise DataError(f"{path}: broken Matrix Market header: {rows}x{columns}, {entries}")
    dtype, size = "complex128" if field == "complex" else "float64", os.fstat(fd).st_size
    if kind == "coordinate":
        if entries * MIN_ENTRY_BYTES.get(field, MIN_OTHER_BYTES) - 1 > size:
            raise _too_short(path, f"{entries} entries", size)
        if symmetry == "skew-symmetric":
            entries *= 2
        elif symmetry != "general":
            entries = 2 * entries - min(rows, entries)
        return MatrixHeader((rows, columns), dtype, entries)
    stored = rows * columns if symmetry == "general" else rows * (columns + 1) // 2
    if 2 * stored - 1 > size:
        raise _too_short(path, f"{rows}x{columns}", size)
    if not stored:
        raise DataError(f"{path}: holds no elements ({rows}x{columns})")
    return MatrixHeader((rows,) if columns == 1 else (rows, columns), dtype)


def _too_short(path: str, what: str, size: int) -> DataError:
    return DataError(
        f"{path}: its header says {what}, the file has {size} bytes: truncated, or the header is"
        " wrong"
    )


# ---- .npz: a zip archive of .npy files


@dataclass(frozen=True)
class _Member:
    shape: tuple[int, ...]
    dtype: np.dtype[np.generic]

    @property
    def size(self) -> int:
        return math.prod(self.shape)


def _npz_header(path: str, file: IO[bytes]) -> MatrixHeader:
    with broken_archive(path), zipfile.ZipFile(file) as archive:
        members = _members(path, archive)
        if "format" in members:
            return _sparse_header(path, archive, members)
    if not members:
        raise DataError(f"{path}: holds no arrays")
    if len(members) != 1:
        names = ", ".join(sorted(members)[:4])
        raise DataError(
            f"{path}: holds the arrays {names}: neither one array nor a sparse matrix of"
            " scipy.sparse.save_npz"
        )
    (member,) = members.values()
    if not member.size:
        raise DataError(f"{path}: holds no elements")
    return MatrixHeader(member.shape, member.dtype.newbyteorder("=").name)


@contextmanager
def broken_archive(path: str) -> Iterator[None]:
    try:
        yield
    except (
        zipfile.BadZipFile,
        zlib.error,
        EOFError,
        RuntimeError,
        OverflowError,
        KeyError,
        ValueError,
    ) as error:
        raise DataError(f"{path}: broken .npz file: {str(error)[:200]}") from None
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        raise DataError(f"{path}: broken .npz file: a position before its start") from None


def _members(path: str, archive: zipfile.ZipFile) -> Mapping[str, _Member]:
    infos = archive.infolist()
    if len(infos) > MAX_MEMBERS:
        raise DataError(f"{path}: {len(infos)} arrays in one file; at most {MAX_MEMBERS}")
    return {
        info.filename.removesuffix(".npy"): _member(path, archive, info)
        for info in infos
        if info.filename.endswith(".npy")
    }


def _member(path: str, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> _Member:
    with archive.open(info) as stream:
        shape, _, dtype = parse_header(f"{path}: {info.filename}", stream)
        if dtype.kind not in NUMERIC and info.filename != "format.npy":
            raise DataError(f"{path}: {info.filename} holds {dtype}; only numbers are supported")
        member = _Member(shape, dtype)
        if stream.tell() + member.size * dtype.itemsize != info.file_size:
            raise DataError(f"{path}: {info.filename} isn't as long as its header says")
    return member


def _sparse_header(
    path: str, archive: zipfile.ZipFile, members: Mapping[str, _Member]
) -> MatrixHeader:
    kind = str(_small(path, archive, "format").item(), "ascii")
    shape = tuple(int(n) for n in np.ravel(_small(path, archive, "shape")))
    if kind not in FORMATS or len(shape) != 2 or min(shape) < 0:
        raise DataError(
            f"{path}: a sparse matrix in the format {kind[:20]!r} with shape {shape};"
            f" supported are matrices in the formats {', '.join(FORMATS)}"
        )
    values = members["data"]
    return MatrixHeader((shape[0], shape[1]), _computed(values.dtype), values.size)


def _computed(dtype: np.dtype[np.generic]) -> str:
    if dtype.kind == "c":
        return dtype.newbyteorder("=").name
    return "float32" if dtype.kind == "f" and dtype.itemsize <= 4 else "float64"


def _small(path: str, archive: zipfile.ZipFile, name: str) -> np.ndarray:
    info = archive.getinfo(f"{name}.npy")
    if info.file_size > MAX_SMALL_BYTES:
        raise DataError(f"{path}: its member {name} has {info.file_size} bytes")
    with archive.open(info) as stream:
        return np.asarray(np.lib.format.read_array(stream, allow_pickle=False))


READER_BYTES = 512 << 20
"""Memory of the reader besides its data: its libraries reserve much."""
THREAD_BYTES = 16 << 20
"""Of each thread of the parser, which has one per core: its stack and its buffers."""
BYTES_PER_DATA_BYTE = 5
"""Memory of the reader per byte of the arrays: SciPy reads triples, expands symmetric ones and
sorts them by rows, each time in new arrays."""
CRASHES = (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL)
"""Ends of the reader that are the file's fault."""
START_SECONDS = 30.0
"""To start the reader on a busy machine."""
MIN_READ_RATE = 2e6
"""Bytes per second; a core reads 50 to 150 MB/s of text."""
ALIGNMENT = 64
"""Bytes that the start of each array is a multiple of."""


def read_matrix(
    path: str, fd: int, header: MatrixHeader, shapes: Shapes, max_bytes: int
) -> dict[str, np.ndarray]:
    """Return the arrays of the file behind `fd` by part: those of `shapes`."""
    nbytes = sum(int(np.prod(s, dtype=object)) * np.dtype(d).itemsize for s, d in shapes.values())
    if nbytes > max_bytes:
        raise DataError(
            f"{path}: needs {format_bytes(nbytes)} of shared memory, the limit here is"
            f" {format_bytes(max_bytes)}"
        )
    threads = THREAD_BYTES * (os.cpu_count() or 1)
    memory = READER_BYTES + threads + BYTES_PER_DATA_BYTE * nbytes
    output = os.memfd_create("hetsched-matrix")
    try:
        _run_reader(path, fd, output, memory, header.entries is not None)
        return _map(path, output, list(shapes))
    finally:
        os.close(output)


def reading_seconds(size: int) -> float:
    return START_SECONDS + size / MIN_READ_RATE


def _run_reader(path: str, fd: int, output: int, memory: int, is_sparse: bool) -> None:
    kind = "sparse" if is_sparse else "dense"
    # -P: no file of the working folder may shadow a module.
    command = [sys.executable, "-P", "-m", "hetsched.store.matrix_reader"]
    command += [str(fd), str(output), str(memory), str(os.getpid()), kind]
    import_path = os.pathsep.join(filter(None, sys.path))
    try:
        reader = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            pass_fds=(fd, output),
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": import_path},
            process_group=0,
            timeout=reading_seconds(os.fstat(fd).st_size),
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise IOFailure(f"{path}: hasn't been read after {error.timeout:.0f} s") from None
    except OSError as error:
        raise TryAgain(f"{path}: can't start the process that reads it: {error}") from None
    if -reader.returncode in CRASHES:
        crash = signal.Signals(-reader.returncode).name
        raise DataError(f"{path}: broken: SciPy's parser crashed on it ({crash})")
    if reader.returncode == DataError.code:
        text = reader.stdout.decode(errors="replace")
        raise DataError(f"{path}: {text.removeprefix(': ')}")
    if reader.returncode:
        reason = reader.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise IOFailure(
            f"{path}: the process that reads it ended with status {reader.returncode}"
            f"{': ' if reason else ''}{reason[:200]}"
        )


def _map(path: str, output: int, parts: list[str]) -> dict[str, np.ndarray]:
    """Return the arrays in the memfd, which is freed with the last of them."""
    memory = mmap.mmap(output, 0)
    arrays: dict[str, np.ndarray] = {}
    for part in parts:
        memory.seek(-(-memory.tell() // ALIGNMENT) * ALIGNMENT)
        shape, is_fortran, dtype = parse_header(path, memory)  # type: ignore[arg-type]
        count = int(np.prod(shape))
        flat = np.frombuffer(memory, dtype, count, memory.tell())
        memory.seek(count * dtype.itemsize, os.SEEK_CUR)
        arrays[part] = flat.reshape(shape, order="F" if is_fortran else "C")
    return arrays
