"""Admits jobs: `check` at submission, `open` when the job's turn comes.

Between them no file is open: inputs are read as they are at the turn, and a long queue takes
neither descriptors nor disk space. A job without files whose kind is known (same workload,
parameters and shapes) needs neither a file nor the code of a plug-in, and is admitted on the loop,
in microseconds. Everything else may hang: it is done in a thread, with a deadline.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable

import msgspec
import numpy as np

from hetsched.bounded_cache import BoundedCache
from hetsched.engine.admission.bind import (
    MachineLimits,
    bind,
    check_outputs,
    create_outputs,
    select_devices,
)
from hetsched.engine.admission.declare import declare, load_workload
from hetsched.engine.admission.files import (
    InputOpener,
    PendingOutputs,
    check_checkpoints,
    has_files,
    shapes_of,
)
from hetsched.engine.admission.resolved_job import Declaration, ResolvedJob
from hetsched.engine.threads import Pool, Step, Task, run_inline
from hetsched.errors import DataError, ErrorRecord, HetschedError, UsageError, to_record
from hetsched.job import ArenaRef, JobSpec, arena_refs
from hetsched.store.matrix_file import reading_seconds
from hetsched.transport.arena import Arena

OnResolved = Callable[[ResolvedJob | None, BaseException | None], None]

MAX_DECLARATION_BYTES = 4 << 20
"""Of the declarations that are kept, with their keys."""
BYTES_PER_DECLARATION = 1024
"""Estimate for a declaration besides its parameters, which are as long as the key."""
MIN_ALLOCATION_RATE = 50e6
"""Bytes per second: a file system without fallocate allocates by writing."""


class Admission:
    """Checks and opens the jobs of one engine. On the loop's thread only."""

    def __init__(self, files: Pool, machine: Callable[[], MachineLimits]) -> None:
        self._files = files
        self._machine = machine
        self._declarations: BoundedCache[bytes, Declaration] = BoundedCache(
            max_bytes=MAX_DECLARATION_BYTES
        )
        self._checks: list[Task] = []
        self.pending = PendingOutputs()  # Of all unfinished jobs, by the scheduler

    def check(self, spec: JobSpec, on_done: OnResolved, is_readmitted: bool = False) -> None:
        """Check `spec`, then ``on_done(job, error)``, possibly at once; its files are closed.

        `is_readmitted`: an earlier daemon has accepted it.
        """
        key = None if has_files(spec) else _declaration_key(spec)
        known = None if key is None else self._declarations.get(key)
        if known is not None:
            run_inline(lambda: self._bind(spec, known), on_done)
            return

        def checked_in_thread(job: ResolvedJob | None, error: BaseException | None) -> None:
            self._checks = [task for task in self._checks if not task.is_answered]
            if job is not None and job.declaration is not None and key is not None:
                nbytes = 2 * len(key) + BYTES_PER_DECLARATION
                self._declarations.put(key, job.declaration, nbytes)
            on_done(job, error)

        machine = self._machine()
        task = self._files.submit(
            lambda step: check(spec, machine, self.pending, step, is_readmitted), checked_in_thread
        )
        if not task.is_answered:
            self._checks.append(task)

    async def open(self, spec: JobSpec, checked: ResolvedJob, token: str = "") -> ResolvedJob:
        """Open the files of a job whose turn has come; at once if it has none.

        `token`: determines the hidden names of the output files.
        """
        if not checked.in_files:
            return self._bind(spec, checked.declaration or checked)
        machine = self._machine()
        return await self._files.call(
            lambda step: open_job(spec, checked, machine, step, token),
            discard=ResolvedJob.close,
            deadline=self._files.deadline + _file_seconds(checked),
        )

    def refusal(self, spec: JobSpec, checked: ResolvedJob) -> ErrorRecord | None:
        """Return why a new job can't be queued now: another one writes the same checkpoint."""
        if not checked.checkpoint:
            return None
        earlier = {dependency.job for dependency in spec.after}
        others = self.pending.with_checkpoint(checked.checkpoint).difference(earlier)
        if not others:
            return None
        return to_record(
            UsageError(
                f"{spec.checkpoint}: job {min(others)} writes its checkpoints there; give another"
                " name, or run this job after that one"
            )
        )

    def abandon_checks(self, error: HetschedError) -> None:
        """Answer all checks in progress with `error`."""
        for task in list(self._checks):
            self._files.abandon(task, error)

    def _bind(self, spec: JobSpec, declaration: Declaration) -> ResolvedJob:
        """Bind a job without files; that its arrays are in the arena is checked elsewhere."""
        opener = InputOpener(Step())
        stored = opener.open(declaration.workload, spec)
        return bind(spec, declaration, stored, self._machine(), opener)


def _declaration_key(spec: JobSpec) -> bytes:
    """Return all that determines the declaration of a job without files."""
    arrays = [
        (name, ref.shape, ref.dtype)
        for name, ref in spec.inputs.items()
        if isinstance(ref, ArenaRef)
    ]
    return msgspec.msgpack.encode((spec.workload, spec.params, arrays))


def _file_seconds(job: ResolvedJob) -> float:
    """Return how long allocating output files, and reading those of iterative jobs, may take."""
    allocation = sum(claim.nbytes for claim in job.claims) / MIN_ALLOCATION_RATE
    return allocation + (reading_seconds(job.input_bytes) if job.iterative is not None else 0.0)


# ---- in a thread


def check(
    spec: JobSpec,
    machine: MachineLimits,
    pending: PendingOutputs,
    step: Step,
    is_readmitted: bool = False,
) -> ResolvedJob:
    """Check everything about `spec` that can be known before it runs.

    `pending`: of the other jobs: inputs may be written by the jobs that this one comes after.
    """
    after = {dependency.job for dependency in spec.after}
    opener = InputOpener(step, pending=pending, after=after)
    job = _resolve(spec, machine, opener, step)
    try:
        step.enter("checking the output folder")
        job.claims = check_outputs(job)
        check_checkpoints(job, spec, step, is_readmitted=is_readmitted)
    finally:
        job.close()
    job.input_paths, job.input_bytes = tuple(opener.paths), opener.nbytes
    job.checkpoint = os.path.realpath(spec.checkpoint) if spec.checkpoint else ""
    return job


def open_job(
    spec: JobSpec, checked: ResolvedJob, machine: MachineLimits, step: Step, token: str = ""
) -> ResolvedJob:
    """Open the inputs as they are now, and create the outputs with all their space."""
    opener = InputOpener(step, max_read=machine.arena_limit)
    job = _resolve(spec, machine, opener, step, checked.declaration)
    try:
        step.enter("creating output files")
        create_outputs(job, spec, token)
    except BaseException:
        job.close()
        raise
    return job


def resolve(spec: JobSpec, machine: MachineLimits) -> ResolvedJob:
    """Bind a job that won't run: its output files are neither created nor checked."""
    step = Step()
    return _resolve(spec, machine, InputOpener(step), step)


def _resolve(
    spec: JobSpec,
    machine: MachineLimits,
    opener: InputOpener,
    step: Step,
    earlier: Declaration | None = None,
) -> ResolvedJob:
    """Open the inputs and bind them; the job takes over the files of `opener`.

    `earlier`: of the same request, reused if its inputs have the same shapes.
    """
    try:
        select_devices(spec.devices, machine.infos, machine.absent)  # before slow steps
        workload = load_workload(spec.workload, step)
        stored = opener.open(workload, spec)
        shapes = shapes_of(stored)
        if earlier is None or earlier.shapes != shapes:
            earlier = declare(spec, workload, shapes, step)
        return bind(spec, earlier, stored, machine, opener)
    except BaseException:
        opener.close()
        raise


# ---- the segments of requests


def hold_segments(arena: Arena, spec: JobSpec) -> list[int]:
    """Retain every segment named in `spec`, or none on error; return the segments."""
    segments: list[int] = []
    try:
        for ref in arena_refs(spec):
            _check_ref(arena, ref)
            arena.retain(ref.segment)
            segments.append(ref.segment)
    except Exception:
        release_segments(arena, segments)
        raise
    return segments


def hold_attached(arena: Arena, keys: Iterable[int]) -> Callable[[], None]:
    """Retain the segments among the attachments `keys` of a process that can't be stopped.

    Their memory must not become another job's while it may still be written to. Returns a function
    that releases them.
    """
    segments = [key for key in keys if arena.holds(key)]
    for segment in segments:
        arena.retain(segment)
    return lambda: release_segments(arena, segments)


def release_segments(arena: Arena, segments: Iterable[int]) -> None:
    """Undo `hold_segments`."""
    for segment in segments:
        arena.release(segment)


def _check_ref(arena: Arena, ref: ArenaRef) -> None:
    if not arena.holds(ref.segment):
        raise DataError(f"segment {ref.segment} is not in the arena; it may have been released")
    try:
        size = math.prod(ref.shape) * np.dtype(ref.dtype).itemsize
    except Exception:  # NumPy's parser raises various exceptions for a client's text
        raise DataError(f"{ref.dtype!r} is not a dtype") from None
    capacity = arena.segment(ref.segment).nbytes
    if min(ref.shape, default=1) < 0 or ref.offset < 0 or ref.offset + size > capacity:
        raise DataError(
            f"an array of {size} bytes at offset {ref.offset} is outside segment {ref.segment},"
            f" which has {capacity} bytes"
        )
