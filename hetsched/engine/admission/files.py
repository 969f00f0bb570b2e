"""The files of jobs: inputs, outputs that others wait for, checkpoints.

They are checked when a job is submitted, and opened when its turn comes: inputs are read as they
are then.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from hetsched.engine.admission.resolved_job import ResolvedJob, file_key
from hetsched.engine.threads import Step
from hetsched.errors import InputMissing, UsageError
from hetsched.iterations.saved_state import saved_bytes
from hetsched.job import FileOut, JobSpec
from hetsched.sparse.parts import part_name
from hetsched.store.checkpoint import (
    InputIdentity,
    Problem,
    check_folder,
    check_iteration,
    check_problem,
    check_target,
    problem_of,
    read_record,
)
from hetsched.store.input_files import open_npy, open_regular
from hetsched.store.matrix_file import read_matrix, read_matrix_header
from hetsched.store.output_files import OutputClaim
from hetsched.transport.device_messages import StoredArray
from hetsched.workload import Iterative, SparseMatrix

PROMISED_KEY = -1 << 31
"""The key of a file that doesn't exist yet: no descriptor has it."""
LOADED_KEY = -1 << 30
"""The key of an array that is read from a file as a whole, when its job is opened."""


@dataclass(frozen=True)
class PromisedOutput:
    """An output of an unfinished job."""

    job: int
    claim: OutputClaim


class PendingOutputs:
    """Output files and checkpoints of unfinished jobs."""

    def __init__(self) -> None:
        self._claims: dict[int, Sequence[OutputClaim]] = {}
        self._promised: dict[str, tuple[PromisedOutput, ...]] = {}
        """Path -> its promises, the last one last."""
        self._checkpoints: dict[int, str] = {}

    def add(self, job: int, claims: Sequence[OutputClaim], checkpoint: str = "") -> None:
        """Record the outputs of a new job, and its checkpoint (links resolved)."""
        if checkpoint:
            self._checkpoints[job] = checkpoint
        if claims:
            self._claims[job] = claims
            for claim in claims:
                earlier = self._promised.get(claim.path, ())
                self._promised[claim.path] = (*earlier, PromisedOutput(job, claim))

    def remove(self, job: int) -> None:
        """Forget a job that has ended."""
        self._checkpoints.pop(job, None)
        for claim in self._claims.pop(job, ()):
            promises = self._promised.pop(claim.path, ())
            others = tuple(promise for promise in promises if promise.job != job)
            if others:
                self._promised[claim.path] = others

    def promise(self, path: str) -> PromisedOutput | None:
        """Return the last job that will write `path` (links resolved); None: no job will."""
        promises = self._promised.get(path)
        return None if promises is None else promises[-1]

    def with_checkpoint(self, path: str) -> set[int]:
        """Return the unfinished jobs that write checkpoints to `path` (links resolved)."""
        return {job for job, checkpoint in self._checkpoints.items() if checkpoint == path}


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
        """Open the input `name`."""
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


# ---- checkpoints


def check_checkpoints(
    job: ResolvedJob, spec: JobSpec, step: Step, *, is_readmitted: bool = False
) -> None:
    """Check that the job can continue from its checkpoint, and write others.

    The values of its inputs are compared when it runs. So are their shapes if they aren't known
    yet, and everything if an earlier job may write the checkpoint.

    Parameters
    ----------
    is_readmitted : bool
        An earlier daemon has accepted the job: it runs even if no checkpoint can be written now.
    """
    if not spec.checkpoint and not spec.resume:
        return
    _check_no_output(spec)
    if spec.checkpoint and not is_readmitted:
        assert isinstance(job.workload, Iterative), "others have no such options"
        step.enter(f"creating a file beside {spec.checkpoint}")
        check_folder(spec.checkpoint, saved_bytes(job.workload, job.params))
    if spec.after:
        return
    is_read_later = any(stored.key == LOADED_KEY for stored in job.inputs.values())
    problem = None if is_read_later else _problem(job, spec)
    if spec.resume:
        step.enter(f"reading {spec.resume}")
        record = read_record(spec.resume)
        assert job.iterative is not None, "others have no such options"
        if problem is not None:
            check_problem(spec.resume, record, problem)
            check_iteration(spec.resume, record, job.iterative.max_iterations)
    if spec.checkpoint and not is_readmitted:
        step.enter(f"checking {spec.checkpoint}")
        check_target(spec.checkpoint, problem)


def _check_no_output(spec: JobSpec) -> None:
    """Check that no output is to replace a checkpoint: it couldn't, after all iterations."""
    for path in filter(None, (spec.checkpoint, spec.resume)):
        outputs = [out.path for out in spec.outputs.values() if isinstance(out, FileOut)]
        if os.path.realpath(path) in map(os.path.realpath, outputs):
            raise UsageError(f"{path}: both a checkpoint and an output; give another name")


def _problem(job: ResolvedJob, spec: JobSpec) -> Problem:
    assert isinstance(job.workload, Iterative), "others have no such options"
    generated = {array.name for array in job.generate}
    inputs = {
        array.name: InputIdentity(
            array.shape(job.load),
            np.dtype(array.dtype).name,
            f"seed:{spec.seed}" if array.name in generated else "",
        )
        for array in job.specs
        if array.is_input
    }
    return problem_of(job.workload, job.params, inputs)[0]
