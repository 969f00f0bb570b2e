"""Opens the input files of one job, at its submission and again when its turn comes."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager

import numpy as np

from hetsched.engine.admission.pending_outputs import (
    PendingOutputs,
    PromisedOutput,
)
from hetsched.engine.admission.resolved_job import file_key
from hetsched.engine.threads.step import Step
from hetsched.errors import InputMissing
from hetsched.sparse.parts import part_name
from hetsched.store.arrays.input_files import open_npy, open_regular
from hetsched.store.matrices.matrix_file import read_matrix, read_matrix_header
from hetsched.transport.device_messages import StoredArray
from hetsched.workload import SparseMatrix

PROMISED_KEY = -1 << 31
"""The key of a file that doesn't exist yet: no descriptor has it."""
LOADED_KEY = -1 << 30
"""The key of an array that is read from a file as a whole, when its job is opened."""


class InputOpener:
    """Opens files. `close` unless a job takes over `files`.

    Parameters
    ----------
    pending : PendingOutputs
        Of other jobs, at submission.
    after : collection of int
        Jobs that end before this one starts: what they will write may be an input.
    max_read : int or None, bytes
        Of what files that aren't .npy may hold; they are read whole. None: only their headers are
        read, so the number of entries of a sparse matrix is an estimate.

    Attributes
    ----------
    files : set of int
        Open descriptors.
    nbytes : int
        Of the files opened so far.
    paths : list of str
        Of the inputs opened so far; links resolved.
    loaded : dict
        Array name -> what has been read of files that aren't .npy.
    """

    def __init__(
        self,
        step: Step,
        *,
        pending: PendingOutputs | None = None,
        after: Collection[int] = (),
        max_read: int | None = None,
    ) -> None:
        self._step = step
        self._pending = pending
        self._after = after
        self._max_read = max_read
        self.files: set[int] = set()
        self.nbytes = 0
        self.paths: list[str] = []
        self.loaded: dict[str, np.ndarray] = {}

    def open(self, name: str, path: str) -> StoredArray:
        """Open the input `name`.

        Raises
        ------
        InputMissing
            It doesn't exist, or isn't readable.
        DataError
            Not a ``.npy`` file of numbers.
        """
        promised = self._enter(path)
        if promised is not None and promised.job in self._after:
            return _promised_array(name, promised)
        with _hint_at(promised):
            fd, header = open_npy(path)
        self.files.add(fd)
        self.nbytes += os.fstat(fd).st_size
        return StoredArray(
            array=name,
            key=file_key(fd),
            shape=header.shape,
            dtype=header.dtype,
            offset=header.offset,
            order=header.order,
        )

    def open_matrix(self, name: str, path: str, matrix: SparseMatrix | None) -> list[StoredArray]:
        """Open the input `name`, a Matrix Market or .npz file, and read it if files are `read`.

        `matrix`: what it must hold; None: one dense array.

        Raises
        ------
        InputMissing
            It doesn't exist, or isn't readable.
        DataError
            Not such a file, broken, or too large.
        IOFailure, TryAgain
            It can't be read at present.
        """
        expected = "a Matrix Market or .npz file"
        promised = self._enter(path)
        with _hint_at(promised):
            fd = open_regular(path, expected)
        self.files.add(fd)
        self.nbytes += os.fstat(fd).st_size
        header = read_matrix_header(path, fd)
        shapes = header.dense_shape(path) if matrix is None else header.sparse_shapes(path)
        if self._max_read is not None:
            self._step.enter(f"reading {path}")
            parts = read_matrix(path, fd, header, shapes, self._max_read)
            shapes = {part: (array.shape, array.dtype.name) for part, array in parts.items()}
            self.loaded |= {_array_name(name, part, matrix): a for part, a in parts.items()}
        return [
            StoredArray(
                array=_array_name(name, part, matrix), key=LOADED_KEY, shape=shape, dtype=dtype
            )
            for part, (shape, dtype) in shapes.items()
        ]

    def close(self) -> None:
        """Close all files."""
        while self.files:
            os.close(self.files.pop())

    def _enter(self, path: str) -> PromisedOutput | None:
        """Note that `path` is opened; return the output of another job that it will be."""
        self._step.enter(f"opening {path}")
        resolved = os.path.realpath(path)
        self.paths.append(resolved)
        return None if self._pending is None else self._pending.promise(resolved)


@contextmanager
def _hint_at(promised: PromisedOutput | None) -> Iterator[None]:
    """Add to the error of a missing file that another job will write it."""
    try:
        yield
    except InputMissing as error:
        if promised is None:
            raise
        job = promised.job
        raise InputMissing(
            f"{error}; job {job} will write it: submit this job with --after {job}"
        ) from None


def _array_name(name: str, part: str, matrix: SparseMatrix | None) -> str:
    return name if matrix is None else part_name(matrix.name, part)


def _promised_array(name: str, promised: PromisedOutput) -> StoredArray:
    claim = promised.claim
    return StoredArray(array=name, key=PROMISED_KEY, shape=claim.shape, dtype=claim.dtype)
