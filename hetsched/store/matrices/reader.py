"""The process that reads one matrix file: ``python -m hetsched.store.matrices.reader``.

SciPy's parsers hold the interpreter's lock for as long as a file takes, and they are native code
that gets users' files, some of which crash it (SciPy 1.17: "2.5R" at the very end of a file). So
they run in a process, which can be limited and killed. The arrays are returned in a memfd, one
after the other, and their places as JSON on standard output.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import resource
import signal
import sys
import warnings
from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
import scipy.io
import scipy.sparse

from hetsched.errors import DataError
from hetsched.sparse.rows import is_sparse, sparse_arrays
from hetsched.store.matrices.matrix_market import MAGIC
from hetsched.store.matrices.npz_members import broken_archive
from hetsched.store.matrices.reader_answer import ArrayPlace, ReaderAnswer
from hetsched.units import format_bytes

ALIGNMENT = 64
"""Bytes that the start of each array is a multiple of."""
NAME = "A"
_PR_SET_PDEATHSIG = 1


def main(fd: int, output: int, memory: int, is_wanted_sparse: bool, parent: int) -> None:
    """Read the file behind `fd` into the memfd `output`, using at most `memory` bytes."""
    _end_with_parent(parent)
    resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
    warnings.simplefilter("ignore")  # standard error is for what went wrong
    try:
        answer = ReaderAnswer(_write(_arrays(fd, is_wanted_sparse), output))
    except DataError as error:
        answer = ReaderAnswer(error=str(error))
    except MemoryError:
        answer = ReaderAnswer(error=f"reading it needs more than {format_bytes(memory)} of memory")
    sys.stdout.buffer.write(msgspec.json.encode(answer))


def _arrays(fd: int, is_wanted_sparse: bool) -> Mapping[str, np.ndarray]:
    matrix = _read(fd)
    if is_wanted_sparse:
        return sparse_arrays(NAME, matrix if is_sparse(matrix) else scipy.sparse.csr_array(matrix))
    array = np.asarray(matrix)
    return {NAME: array[:, 0] if array.ndim == 2 and array.shape[1] == 1 else array}


def _read(fd: int) -> Any:
    """Return what SciPy makes of the file: a sparse matrix or an array."""
    if os.pread(fd, len(MAGIC), 0) == MAGIC:
        try:
            return scipy.io.mmread(f"/proc/self/fd/{fd}")
        except (ValueError, OverflowError, TypeError) as error:
            raise DataError(f"broken Matrix Market file: {str(error)[:200]}") from None
    with broken_archive(""), open(fd, "rb", closefd=False) as file:
        file.seek(0)  # the position is shared with the process that has read the header
        archive = np.load(file, allow_pickle=False)
        if "format" in archive.files:
            file.seek(0)
            return scipy.sparse.load_npz(file)
        return archive[archive.files[0]]


def _write(arrays: Mapping[str, np.ndarray], output: int) -> tuple[ArrayPlace, ...]:
    """Write the arrays one after the other; return their places."""
    places: list[ArrayPlace] = []
    end = 0
    for name, array in arrays.items():
        part = name.removeprefix(NAME).lstrip(".")
        offset = -(-end // ALIGNMENT) * ALIGNMENT
        end = offset + array.nbytes
        places.append(ArrayPlace(part, array.shape, array.dtype.name, offset))
    os.ftruncate(output, end)
    with mmap.mmap(output, end) as memory:
        for place, array in zip(places, arrays.values(), strict=True):
            target = np.frombuffer(memory, array.dtype, array.size, place.offset)
            target.reshape(array.shape)[...] = array
            del target
    return tuple(places)


def _end_with_parent(parent: int) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


if __name__ == "__main__":
    fd, output, memory, parent = (int(word) for word in sys.argv[1:5])
    main(fd, output, memory, sys.argv[5] == "sparse", parent)
