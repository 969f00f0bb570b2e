"""The process that reads one matrix file, started by `matrix_file.py`."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys
import warnings
from collections.abc import Iterable
from typing import Any

import numpy as np
import scipy.io
import scipy.sparse

from hetsched.errors import DataError
from hetsched.sparse_rows import is_sparse, sparse_arrays
from hetsched.store.matrix_file import ALIGNMENT, MARKET_MAGIC, broken_archive
from hetsched.units import format_bytes

NAME = "A"
_PR_SET_PDEATHSIG = 1


def main(fd: int, output: int, memory: int, is_wanted_sparse: bool, parent: int) -> int:
    """Read the file behind `fd` into the memfd `output`, using at most `memory` bytes."""
    _end_with_parent(parent)
    resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
    warnings.simplefilter("ignore")  # standard error is for what went wrong
    try:
        with open(output, "wb", closefd=False) as file:
            for array in _arrays(fd, is_wanted_sparse):
                file.seek(-(-file.tell() // ALIGNMENT) * ALIGNMENT)
                np.save(file, array, allow_pickle=False)
    except DataError as error:
        sys.stdout.write(str(error))
        return DataError.code
    except MemoryError:
        sys.stdout.write(f"reading it needs more than {format_bytes(memory)} of memory")
        return DataError.code
    return 0


def _arrays(fd: int, is_wanted_sparse: bool) -> Iterable[np.ndarray]:
    matrix = _read(fd)
    if is_wanted_sparse:
        rows = matrix if is_sparse(matrix) else scipy.sparse.csr_array(matrix)
        return sparse_arrays(NAME, rows).values()
    array = np.asarray(matrix)
    return [
        np.ascontiguousarray(array[:, 0] if array.ndim == 2 and array.shape[1] == 1 else array)
    ]


def _read(fd: int) -> Any:
    if os.pread(fd, len(MARKET_MAGIC), 0) == MARKET_MAGIC:
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


def _end_with_parent(parent: int) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


if __name__ == "__main__":
    fd, output, memory, parent = (int(word) for word in sys.argv[1:5])
    sys.exit(main(fd, output, memory, sys.argv[5] == "sparse", parent))
