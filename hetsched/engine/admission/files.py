"""The files of jobs: inputs, outputs that others wait for, checkpoints.

They are checked when a job is submitted, and opened when its turn comes: inputs are read as they
are then.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager

import numpy as np

from hetsched.engine.admission.resolved_job import ResolvedJob, file_key
from hetsched.engine.threads import Step
from hetsched.errors import DataError, InputMissing, UsageError
from hetsched.iterations.saved_state import saved_bytes
from hetsched.job import ArenaRef, FileOut, FileRef, InputRef, JobSpec
from hetsched.sparse import PARTS, Shapes, part_name
from hetsched.store.checkpoint import (
    Problem,
    check_iteration,
    check_problem,
    check_target,
    problem_of,
    read_record,
)
from hetsched.store.input_files import open_npy, open_regular
from hetsched.store.matrix_file import is_matrix_file, read_matrix, read_matrix_header
from hetsched.store.output_files import OutputClaim, check_folder
from hetsched.transport.device_messages import StoredArray
from hetsched.workload import BaseWorkload, Iterative, SparseMatrix

PROMISED_KEY = -1 << 31
"""The key of a file that doesn't exist yet: no descriptor has it."""
LOADED_KEY = -1 << 30
"""The key of an array that is read from a file as a whole, when its job is opened."""


Promise = tuple[int, OutputClaim]
"""A job, and a file that it will write."""


def has_files(spec: JobSpec) -> bool:
    """Return whether an input or output of `spec` is a file, or it names a checkpoint."""
    for ref in (*spec.inputs.values(), *spec.outputs.values()):
        if isinstance(ref, FileRef | FileOut):
            return True
    return bool(spec.checkpoint or spec.resume)


class PendingOutputs:
    """Output files and checkpoints of unfinished jobs, by path with its links resolved."""

    def __init__(self) -> None:
        self._claims: dict[str, dict[int, OutputClaim]] = {}
        self._checkpoints: dict[int, str] = {}

    def add(self, number: int, job: ResolvedJob) -> None:
        if job.checkpoint:
            self._checkpoints[number] = job.checkpoint
        for claim in job.claims:
            self._claims.setdefault(claim.path, {})[number] = claim

    def remove(self, number: int, job: ResolvedJob) -> None:
        """Forget a job that has ended."""
        self._checkpoints.pop(number, None)
        for claim in job.claims:
            self._claims[claim.path].pop(number, None)
            if not self._claims[claim.path]:
                del self._claims[claim.path]

    def promise(self, path: str) -> Promise | None:
        """Return the last job that will write `path`, and what. From any thread."""
        claims = list(self._claims.get(path, {}).items())
        return claims[-1] if claims else None

    def with_checkpoint(self, path: str) -> set[int]:
        """Return the unfinished jobs that write checkpoints to `path`."""
        return {job for job, checkpoint in self._checkpoints.items() if checkpoint == path}


# ---- inputs


class InputOpener:
    """Opens the inputs of one job. `close` it unless the job takes over `files`.

    `after`: jobs that end before this one starts: what they will write may be an input.
    `max_read`: bytes that files other than .npy may hold, which are read whole; None: only their
    headers are read, so the number of entries of a sparse matrix is an estimate.
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

    def open(self, workload: BaseWorkload, spec: JobSpec) -> dict[str, StoredArray]:
        """Open the inputs of `spec` and return them by array name, without generated ones."""
        opened: dict[str, StoredArray] = {}
        for name, reference in _named(workload, spec.inputs).items():
            matrix = next((each for each in workload.composites if each.name == name), None)
            if isinstance(reference, ArenaRef):
                if matrix is not None:
                    raise DataError(
                        f"input {name} is a sparse matrix, not one array: give a SciPy sparse"
                        f" array, such as scipy.sparse.csr_array({name})"
                    )
                opened[name] = StoredArray(
                    array=name,
                    key=reference.segment,
                    shape=reference.shape,
                    dtype=reference.dtype,
                    offset=reference.offset,
                )
            elif isinstance(reference, FileRef):
                path = reference.path
                if matrix is not None or (
                    isinstance(workload, Iterative) and is_matrix_file(path)
                ):
                    opened |= self._open_matrix(name, path, matrix)
                else:
                    opened[name] = self._open_npy(name, path)
        for composite in workload.composites:
            composite.check(shapes_of(opened))
        return opened

    def _open_npy(self, name: str, path: str) -> StoredArray:
        promise = self._enter(path)
        if promise is not None and promise[0] in self._after:
            _, claim = promise
            return StoredArray(array=name, key=PROMISED_KEY, shape=claim.shape, dtype=claim.dtype)
        with _hint_at(promise):
            fd, header = open_npy(path)
        self._take(fd)
        return StoredArray(
            array=name,
            key=file_key(fd),
            shape=header.shape,
            dtype=header.dtype,
            offset=header.offset,
            order=header.order,
        )

    def _open_matrix(
        self, name: str, path: str, matrix: SparseMatrix | None
    ) -> dict[str, StoredArray]:
        """Open a Matrix Market or .npz file. `matrix`: what it must hold; None: a dense array."""
        with _hint_at(self._enter(path)):
            fd = open_regular(path, "a Matrix Market or .npz file")
        self._take(fd)
        header = read_matrix_header(path, fd)
        shapes = header.dense_shape(path) if matrix is None else header.sparse_shapes(path)
        names = {part: name if matrix is None else part_name(name, part) for part in shapes}
        if self._max_read is not None:
            self._step.enter(f"reading {path}")
            parts = read_matrix(path, fd, header, shapes, self._max_read)
            shapes = {part: (array.shape, array.dtype.name) for part, array in parts.items()}
            self.loaded |= {names[part]: array for part, array in parts.items()}
        return {
            names[part]: StoredArray(array=names[part], key=LOADED_KEY, shape=shape, dtype=dtype)
            for part, (shape, dtype) in shapes.items()
        }

    def close(self) -> None:
        """Close all files."""
        while self.files:
            os.close(self.files.pop())

    def _take(self, fd: int) -> None:
        self.files.add(fd)
        self.nbytes += os.fstat(fd).st_size

    def _enter(self, path: str) -> Promise | None:
        """Note that `path` is opened; return the output of another job that it will be."""
        self._step.enter(f"opening {path}")
        resolved = os.path.realpath(path)
        self.paths.append(resolved)
        return None if self._pending is None else self._pending.promise(resolved)


@contextmanager
def _hint_at(promise: Promise | None) -> Iterator[None]:
    """Add to the error of a missing file that another job will write it."""
    try:
        yield
    except InputMissing as error:
        if promise is None:
            raise
        job, _ = promise
        raise InputMissing(
            f"{error}; job {job} will write it: submit this job with --after {job}"
        ) from None


def shapes_of(stored: Mapping[str, StoredArray]) -> Shapes:
    """Return the shapes of inputs, and NumPy's names of their dtypes, for plug-ins."""
    return {name: (array.shape, np.dtype(array.dtype).name) for name, array in stored.items()}


def _named(workload: BaseWorkload, inputs: Mapping[str, InputRef]) -> Mapping[str, InputRef]:
    """Return inputs of the workload by name; "" is the only one that it needs."""
    if "" in inputs:
        if len(inputs) > 1:
            raise UsageError(f"{workload.name}: give every input its name, NAME=FILE")
        only = workload.only_input
        if only is None:
            names = ", ".join(workload.input_names)
            raise UsageError(f"{workload.name} has the inputs {names}: name them, NAME=FILE")
        return {only: inputs[""]}
    names_of_inputs = {*workload.inputs, *workload.input_names}
    for name in inputs:
        if name not in names_of_inputs:
            owner, _, part = name.rpartition(".")
            if part in PARTS and owner in workload.inputs:
                raise DataError(
                    f"{workload.name} takes {owner} as a dense array, not as a sparse matrix: give"
                    f" {owner}.toarray()"
                )
            names = ", ".join(workload.input_names)
            raise UsageError(f"{workload.name} has no input {name!r}; it has {names}")
    for composite in workload.composites:
        for part in composite.arrays:
            if part in inputs and composite.name in inputs:
                raise UsageError(f"input {part} is part of {composite.name}: give one of the two")
    return inputs


# ---- checkpoints


def check_checkpoints(
    job: ResolvedJob, spec: JobSpec, step: Step, *, is_readmitted: bool = False
) -> None:
    """Check that the job can continue from its checkpoint, and write others.

    The values of its inputs are compared when it runs. So are their shapes if they aren't known
    yet, and everything if an earlier job may write the checkpoint. `is_readmitted`: an earlier
    daemon has accepted the job: it runs even if no checkpoint can be written now.
    """
    if not spec.checkpoint and not spec.resume:
        return
    _check_no_output(spec)
    assert job.iterative is not None, "others have no such options"
    assert isinstance(job.workload, Iterative), "others have no such options"
    is_written = bool(spec.checkpoint) and not is_readmitted
    if is_written:
        step.enter(f"creating a file beside {spec.checkpoint}")
        check_folder(spec.checkpoint, saved_bytes(job.workload, job.params))
    if spec.after:
        return
    is_read_later = any(stored.key == LOADED_KEY for stored in job.inputs.values())
    problem = None if is_read_later else _problem(job, job.workload, spec)
    if spec.resume:
        step.enter(f"reading {spec.resume}")
        record = read_record(spec.resume)
        if problem is not None:
            check_problem(spec.resume, record, problem)
            check_iteration(spec.resume, record, job.iterative.max_iterations)
    if is_written:
        step.enter(f"checking {spec.checkpoint}")
        check_target(spec.checkpoint, problem)


def _check_no_output(spec: JobSpec) -> None:
    """Check that no output is to replace a checkpoint: it couldn't, after all iterations."""
    for path in filter(None, (spec.checkpoint, spec.resume)):
        outputs = [out.path for out in spec.outputs.values() if isinstance(out, FileOut)]
        if os.path.realpath(path) in map(os.path.realpath, outputs):
            raise UsageError(f"{path}: both a checkpoint and an output; give another name")


def _problem(job: ResolvedJob, workload: Iterative, spec: JobSpec) -> Problem:
    sources = {array.name: f"seed:{spec.seed}" for array in job.generate}
    return problem_of(workload, job.params, job.specs, sources)[0]
