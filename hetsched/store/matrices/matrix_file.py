"""Matrix files: what they hold, and their arrays."""

from __future__ import annotations

import math
import mmap
import os
import signal
import subprocess
import sys

import msgspec
import numpy as np

from hetsched.errors import DataError, HetschedError, IOFailure, TryAgain
from hetsched.store.arrays.input_files import open_regular
from hetsched.store.arrays.npy_format import MAGIC as NPY_MAGIC
from hetsched.store.matrices.header import HOW_TO_SAVE, MatrixHeader, Shapes
from hetsched.store.matrices.matrix_market import MAGIC, MAX_HEADER, parse_header
from hetsched.store.matrices.npz_members import MAGIC as NPZ_MAGIC
from hetsched.store.matrices.npz_members import read_npz_header
from hetsched.store.matrices.reader_answer import ArrayPlace, ReaderAnswer
from hetsched.units import format_bytes

GZIP_MAGIC = b"\x1f\x8b"
READER_BYTES = 512 << 20
"""Memory of the reader besides its data: its libraries reserve much. Arbitrary."""
THREAD_BYTES = 16 << 20
"""Of each thread of the parser, which has one per core: its stack and its buffers."""
BYTES_PER_DATA_BYTE = 5
"""Memory of the reader per byte of the arrays: SciPy reads triples, expands symmetric ones and
sorts them by rows, each time in new arrays."""
CRASHES = (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL)
"""Ends of the reader that are the file's fault."""
START_SECONDS = 30.0
"""To start the reader on a busy machine. Arbitrary."""
MIN_READ_RATE = 2e6
"""Bytes per second; a core reads 50 to 150 MB/s of text. Arbitrary."""

_decode_answer = msgspec.json.Decoder(ReaderAnswer).decode


def is_matrix_file(path: str) -> bool:
    """Return whether the file begins like one of those that are read here."""
    try:
        fd = open_regular(path, "a file")
    except HetschedError:
        return False
    try:
        return os.pread(fd, len(MAGIC), 0).startswith((MAGIC, NPZ_MAGIC, GZIP_MAGIC))
    except OSError:
        return False
    finally:
        os.close(fd)


def read_matrix_header(path: str, fd: int) -> MatrixHeader:
    """Return what the file behind `fd` holds; `path` is used in errors only.

    Raises
    ------
    DataError
        Neither Matrix Market nor .npz, or broken.
    IOFailure
    """
    try:
        start = os.pread(fd, MAX_HEADER, 0)
        size = os.fstat(fd).st_size
        if start.startswith(MAGIC):
            return parse_header(path, start, size)
        if start.startswith(NPZ_MAGIC):
            with open(fd, "rb", closefd=False) as file:
                return read_npz_header(path, file)
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


def read_matrix(
    path: str, fd: int, header: MatrixHeader, shapes: Shapes, max_bytes: int
) -> dict[str, np.ndarray]:
    """Read the file behind `fd` in a process of its own; return its arrays by part.

    Parameters
    ----------
    shapes : mapping
        Of `header.sparse_shapes` or `header.dense_shape`: what is wanted.
    max_bytes : int
        Of these arrays.

    Raises
    ------
    DataError
        Broken, or larger than `max_bytes`.
    TryAgain, IOFailure
        It can't be read at present.
    """
    nbytes = sum(math.prod(s) * np.dtype(d).itemsize for s, d in shapes.values())
    if nbytes > max_bytes:
        raise DataError(
            f"{path}: needs {format_bytes(nbytes)} of shared memory, the limit here is"
            f" {format_bytes(max_bytes)}"
        )
    threads = THREAD_BYTES * (os.cpu_count() or 1)
    memory = READER_BYTES + threads + BYTES_PER_DATA_BYTE * nbytes
    output = os.memfd_create("hetsched-matrix")
    try:
        return _map(_run_reader(path, fd, output, memory, header.entries is not None), output)
    finally:
        os.close(output)


def reading_seconds(size: int) -> float:
    """Return how long reading a file of `size` bytes may take."""
    return START_SECONDS + size / MIN_READ_RATE


def _run_reader(
    path: str, fd: int, output: int, memory: int, is_sparse: bool
) -> tuple[ArrayPlace, ...]:
    kind = "sparse" if is_sparse else "dense"
    # -P: no file of the working folder may shadow a module.
    command = [sys.executable, "-P", "-m", "hetsched.store.matrices.reader"]
    command += [str(fd), str(output), str(memory), str(os.getpid()), kind]
    try:
        reader = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            pass_fds=(fd, output),
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": _import_path()},
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
    try:
        answer = _decode_answer(reader.stdout)
    except msgspec.DecodeError:
        reason = reader.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise IOFailure(
            f"{path}: the process that reads it ended with status {reader.returncode}"
            f"{': ' if reason else ''}{reason[:200]}"
        ) from None
    if answer.error:
        raise DataError(f"{path}: {answer.error.removeprefix(': ')}")
    return answer.arrays


def _map(places: tuple[ArrayPlace, ...], output: int) -> dict[str, np.ndarray]:
    """Return the arrays in the memfd, which is freed with the last of them."""
    memory = mmap.mmap(output, 0)
    arrays: dict[str, np.ndarray] = {}
    for place in places:
        flat = np.frombuffer(memory, place.dtype, math.prod(place.shape), place.offset)
        arrays[place.part] = flat.reshape(place.shape)
    return arrays


def _import_path() -> str:
    return os.pathsep.join(filter(None, sys.path))
