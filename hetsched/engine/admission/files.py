"""The files of jobs: inputs, outputs that others wait for, checkpoints.

They are checked when a job is submitted, and opened when its turn comes: inputs are read as they
are then.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

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


def has_files(spec: JobSpec) -> bool:
    """Return whether an input or output of `spec` is a file, or it names a checkpoint."""
    for ref in (*spec.inputs.values(), *spec.outputs.values()):
        if isinstance(ref, FileRef | FileOut):
            return True
    return bool(spec.checkpoint or spec.resume)


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
                opened[name] = _in_arena(name, reference)
            elif isinstance(reference, FileRef):
                is_matrix = matrix is not None or (
                    isinstance(workload, Iterative) and is_matrix_file(reference.path)
                )
                open_file = self._open_matrix if is_matrix else self._open_npy
                opened |= {array.array: array for array in open_file(name, reference.path, matrix)}
        for composite in workload.composites:
            composite.check(shapes_of(opened))
        return opened

    def _open_npy(
        self, name: str, path: str, matrix: SparseMatrix | None = None
    ) -> list[StoredArray]:
        promised = self._enter(path)
        if promised is not None and promised.job in self._after:
            claim = promised.claim
            return [
                StoredArray(array=name, key=PROMISED_KEY, shape=claim.shape, dtype=claim.dtype)
            ]
        with _hint_at(promised):
            fd, header = open_npy(path)
        self._take(fd)
        return [
            StoredArray(
                array=name,
                key=file_key(fd),
                shape=header.shape,
                dtype=header.dtype,
                offset=header.offset,
                order=header.order,
            )
        ]

    def _open_matrix(self, name: str, path: str, matrix: SparseMatrix | None) -> list[StoredArray]:
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
        return [
            StoredArray(array=names[part], key=LOADED_KEY, shape=shape, dtype=dtype)
            for part, (shape, dtype) in shapes.items()
        ]

    def close(self) -> None:
        """Close all files."""
        while self.files:
            os.close(self.files.pop())

    def _take(self, fd: int) -> None:
        self.files.add(fd)
        self.nbytes += os.fstat(fd).st_size

    def _enter(self, path: str) -> PromisedOutput | None:
        """Note that `path` is opened; return the output of another job that it will be."""
        self._step.enter(f"opening {path}")
        resolved = os.path.realpath(path)
        self.paths.append(resolved)
        return None if self._pending is None else self._pending.promise(resolved)


def shapes_of(stored: Mapping[str, StoredArray]) -> Shapes:
    """Return the shapes of inputs, and NumPy's names of their dtypes, for plug-ins."""
    return {name: (array.shape, np.dtype(array.dtype).name) for name, array in stored.items()}


def _in_arena(name: str, ref: ArenaRef) -> StoredArray:
    return StoredArray(
        array=name, key=ref.segment, shape=ref.shape, dtype=ref.dtype, offset=ref.offset
    )


def _named(workload: BaseWorkload, inputs: Mapping[str, InputRef]) -> Mapping[str, InputRef]:
    """Return inputs of the workload by name; "" is the only one that it needs."""
    if "" in inputs:
        if len(inputs) > 1:
            raise UsageError(f"{workload.name}: give every input its name, NAME=FILE")
        if workload.only_input is None:
            names = ", ".join(workload.input_names)
            raise UsageError(f"{workload.name} has the inputs {names}: name them, NAME=FILE")
        return {workload.only_input: inputs[""]}
    for name in inputs:
        if name not in (*workload.inputs, *workload.input_names):
            raise _unknown_input(workload, name)
    for composite in workload.composites:
        for part in composite.arrays:
            if part in inputs and composite.name in inputs:
                raise UsageError(f"input {part} is part of {composite.name}: give one of the two")
    return inputs


def _unknown_input(workload: BaseWorkload, name: str) -> Exception:
    owner, _, part = name.rpartition(".")
    if part in PARTS and owner in workload.inputs:
        return DataError(
            f"{workload.name} takes {owner} as a dense array, not as a sparse matrix: give"
            f" {owner}.toarray()"
        )
    names = ", ".join(workload.input_names)
    return UsageError(f"{workload.name} has no input {name!r}; it has {names}")


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
    sources = {array.name: f"seed:{spec.seed}" for array in job.generate}
    return problem_of(job.workload, job.params, job.specs, sources)[0]
