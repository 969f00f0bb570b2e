"""Reads a matrix file in a process of its own: ``python -m hetsched.store.matrices``.

SciPy's parsers hold the interpreter's lock for as long as a file takes, and they are native code
that gets users' files, some of which crash it (SciPy 1.17: "2.5R" at the very end of a file). So
they run in a process, which can be limited and killed. It returns the arrays in a memfd, as .npy
files one after the other, and what is wrong with the file on standard output.
"""

from __future__ import annotations

import mmap
import os
import signal
import subprocess
import sys

import numpy as np

from hetsched.errors import DataError, IOFailure, TryAgain
from hetsched.store.arrays.npy_format import parse_header
from hetsched.store.matrices.headers import MatrixHeader, Shapes
from hetsched.units import format_bytes

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
    """Read the file behind `fd`; return its arrays by part.

    Parameters
    ----------
    shapes : mapping
        Of `header.sparse_shapes` or `header.dense_shape`: what is wanted.
    max_bytes : int
        Of these arrays.
    """
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
    """Return how long reading a file of `size` bytes may take."""
    return START_SECONDS + size / MIN_READ_RATE


def _run_reader(path: str, fd: int, output: int, memory: int, is_sparse: bool) -> None:
    kind = "sparse" if is_sparse else "dense"
    # -P: no file of the working folder may shadow a module.
    command = [sys.executable, "-P", "-m", "hetsched.store.matrices"]
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
