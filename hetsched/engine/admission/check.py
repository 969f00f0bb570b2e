"""Admits jobs: `check` at submission, `open` when the job's turn comes.

Between them no file is open: inputs are read as they are at the turn, and a long queue takes
neither descriptors nor disk space. A job without files whose kind is known (same workload,
parameters and shapes) needs neither a file nor the code of a plug-in, and is admitted on the loop,
in microseconds. Everything else may hang: it is done in a thread, with a deadline.
"""

from __future__ import annotations

import functools
import math
import os
from collections import deque
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

import numpy as np

from hetsched.bounded_cache import BoundedCache
from hetsched.engine.admission.bind import (
    MachineLimits,
    bind,
    check_outputs,
    create_outputs,
    open_inputs,
    select_devices,
    shapes_of,
)
from hetsched.engine.admission.declare import (
    Declaration,
    declaration_bytes,
    declaration_key,
    declare,
    has_files,
    load_workload,
)
from hetsched.engine.admission.files import InputOpener, PendingOutputs, check_checkpoints
from hetsched.engine.admission.resolved_job import ResolvedJob
from hetsched.engine.threads import Pool, Step, Task, run_inline
from hetsched.errors import DataError, ErrorRecord, HetschedError, TryAgain, UsageError, to_record
from hetsched.job import ArenaRef, JobSpec
from hetsched.job_segments import arena_refs
from hetsched.store.matrix_file import reading_seconds
from hetsched.store.output_files import OutputClaim
from hetsched.transport.arena import Arena
from hetsched.workload import Iterative

OnChecked = Callable[["CheckedJob | None", BaseException | None], None]
OnOpened = Callable[[ResolvedJob | None, BaseException | None], None]
Abandon = Callable[[HetschedError], None]
_Check = tuple[JobSpec, OnChecked, bool]

MAX_DECLARATION_BYTES = 4 << 20
"""Of the declarations that are kept, with their keys. Arbitrary."""
MIN_ALLOCATION_RATE = 50e6
"""Bytes per second: a file system without fallocate allocates by writing. Arbitrary."""


@dataclass(frozen=True, eq=False)
class CheckedJob:
    """A request that could run when it was submitted.

    Attributes
    ----------
    job : ResolvedJob
        As bound at submission; its files are closed.
    machine : MachineLimits
        At submission.
    claims : tuple of OutputClaim
        The output files.
    input_paths : tuple of str
        The input files; links resolved.
    input_bytes : int
        Of these files.
    checkpoint : str
        The file of its checkpoints, links resolved; "": none.
    """

    spec: JobSpec
    declaration: Declaration
    job: ResolvedJob
    machine: MachineLimits
    claims: tuple[OutputClaim, ...] = ()
    input_paths: tuple[str, ...] = ()
    input_bytes: int = 0
    checkpoint: str = ""

    @property
    def needs_files(self) -> bool:
        """Whether files must be opened before the job runs."""
        return has_files(self.spec)


class Admission:
    """Checks and opens the jobs of one engine. On the loop's thread only.

    Parameters
    ----------
    files : Pool
    machine : callable
        Returns the present limits.

    Attributes
    ----------
    pending : PendingOutputs
        Of all unfinished jobs; kept up to date by the scheduler.
    """

    def __init__(self, files: Pool, machine: Callable[[], MachineLimits]) -> None:
        self._files = files
        self._machine = machine
        self._declarations: BoundedCache[bytes, Declaration] = BoundedCache(
            max_bytes=MAX_DECLARATION_BYTES
        )
        self._checks: list[Task] = []
        self._later_checks: deque[_Check] = deque()
        self.pending = PendingOutputs()

    def check(
        self,
        spec: JobSpec,
        on_checked: OnChecked,
        is_readmitted: bool = False,
    ) -> None:
        """Check `spec`, then ``on_checked(checked, error)``, possibly at once.

        `is_readmitted`: an earlier daemon has accepted it. If it depends on others, it is checked
        after all those before it: it may read what they will write.
        """
        is_ordered = is_readmitted and bool(spec.after) and has_files(spec)
        if is_ordered and (self._checks or self._later_checks):
            self._later_checks.append((spec, on_checked, is_readmitted))
        else:
            self._check(spec, on_checked, is_readmitted)

    def _check(self, spec: JobSpec, on_checked: OnChecked, is_readmitted: bool) -> None:
        key = None if has_files(spec) else declaration_key(spec)
        known = None if key is None else self._declarations.get(key)
        if known is not None:
            run_inline(lambda: self._check_known(spec, known), on_checked)
            return

        def checked_in_thread(checked: CheckedJob | None, error: BaseException | None) -> None:
            self._checks = [task for task in self._checks if not task.is_answered]
            if checked is not None and key is not None:
                self._declarations.put(key, checked.declaration, declaration_bytes(key))
            on_checked(checked, error)
            if self._later_checks and not self._checks:
                self._check(*self._later_checks.popleft())

        machine = self._machine()
        task = self._files.submit(
            lambda step: check(spec, machine, self.pending, step, is_readmitted), checked_in_thread
        )
        if not task.is_answered:
            self._checks.append(task)

    def open(self, checked: CheckedJob, on_opened: OnOpened, token: str = "") -> Abandon:
        """Open the files of a job whose turn has come, then ``on_opened(job, error)``.

        At once if it has none. `token`: determines the hidden names of the output files. Call the
        returned function to end the wait with an error.
        """
        if not checked.needs_files:
            run_inline(lambda: self._bound(checked), on_opened)
            return lambda error: None
        machine = self._machine()
        task = self._files.submit(
            lambda step: open_job(checked, machine, step, token),
            on_opened,
            discard=ResolvedJob.close,
            deadline=self._files.deadline + _file_seconds(checked),
        )
        return functools.partial(self._files.abandon, task)

    def abandon_checks(self, error: HetschedError) -> None:
        """Answer all checks in progress with `error`."""
        later, self._later_checks = self._later_checks, deque()
        for task in list(self._checks):
            self._files.abandon(task, error)
        for _, on_checked, _ in later:
            on_checked(None, error)

    def _check_known(self, spec: JobSpec, declaration: Declaration) -> CheckedJob:
        """Check a job without files; that its arrays are in the arena is checked elsewhere."""
        machine = self._machine()
        return CheckedJob(spec, declaration, self._bind(spec, declaration, machine), machine)

    def _bound(self, checked: CheckedJob) -> ResolvedJob:
        """Return the job without files as it was checked, unless the devices have changed."""
        machine = self._machine()
        if machine == checked.machine:
            return checked.job
        return self._bind(checked.spec, checked.declaration, machine)

    def _bind(
        self, spec: JobSpec, declaration: Declaration, machine: MachineLimits
    ) -> ResolvedJob:
        opener = InputOpener(Step())
        stored = open_inputs(declaration.workload, spec, opener)
        job = bind(spec, declaration, stored, machine, opener)
        check_outputs(job, spec)
        return job


def _file_seconds(checked: CheckedJob) -> float:
    """Return how long allocating output files, and reading those of iterative jobs, may take."""
    allocation = sum(claim.nbytes for claim in checked.claims) / MIN_ALLOCATION_RATE
    if not isinstance(checked.declaration.workload, Iterative):
        return allocation
    return allocation + reading_seconds(checked.input_bytes)


# ---- in a thread


def check(
    spec: JobSpec,
    machine: MachineLimits,
    pending: PendingOutputs,
    step: Step,
    is_readmitted: bool = False,
) -> CheckedJob:
    """Check everything about `spec` that can be known before it runs.

    Parameters
    ----------
    pending : PendingOutputs
        Of the other jobs: inputs may be written by the jobs that this one comes after.
    is_readmitted : bool
        An earlier daemon has accepted it.
    """
    after: Collection[int] = {dependency.job for dependency in spec.after}
    opener = InputOpener(step, pending=pending, after=after)
    try:
        job, declaration = resolve_inputs(spec, machine, opener, step)
        step.enter("checking the output folder")
        claims = check_outputs(job, spec)
        check_checkpoints(job, spec, step, is_readmitted=is_readmitted)
    finally:
        opener.close()
    paths = tuple(opener.paths)
    checkpoint = os.path.realpath(spec.checkpoint) if spec.checkpoint else ""
    return CheckedJob(spec, declaration, job, machine, claims, paths, opener.nbytes, checkpoint)


def open_job(
    checked: CheckedJob, machine: MachineLimits, step: Step, token: str = ""
) -> ResolvedJob:
    """Open the inputs as they are now, and create the outputs with all their space.

    `token`: see `store/output_files.py`.
    """
    spec, earlier = checked.spec, checked.declaration
    opener = InputOpener(step, max_read=machine.arena_limit)
    return _opened(spec, machine, opener, step, earlier=earlier, token=token)


def resolve(spec: JobSpec, machine: MachineLimits, *, with_outputs: bool = True) -> ResolvedJob:
    """Check `spec`, open its files and create its output files: `check` and `open_job` in one.

    `with_outputs`: False: neither create output files nor check that they could be created.
    """
    step = Step()
    return _opened(spec, machine, InputOpener(step), step, with_outputs=with_outputs)


def _opened(
    spec: JobSpec,
    machine: MachineLimits,
    opener: InputOpener,
    step: Step,
    *,
    earlier: Declaration | None = None,
    with_outputs: bool = True,
    token: str = "",
) -> ResolvedJob:
    job: ResolvedJob | None = None
    try:
        job, _ = resolve_inputs(spec, machine, opener, step, earlier)
        if with_outputs:
            step.enter("creating output files")
            create_outputs(job, spec, token)
    except BaseException:
        (job or opener).close()
        raise
    return job


def resolve_inputs(
    spec: JobSpec,
    machine: MachineLimits,
    opener: InputOpener,
    step: Step,
    earlier: Declaration | None = None,
) -> tuple[ResolvedJob, Declaration]:
    """Open the inputs and bind them; the job takes over the files of `opener`.

    `earlier`: of the same request, reused if its inputs have the same shapes.
    """
    select_devices(spec.devices, machine.infos, machine.absent)  # before slow steps
    workload = load_workload(spec.workload, step)
    stored = open_inputs(workload, spec, opener)
    shapes = shapes_of(stored)
    if earlier is None or earlier.shapes != shapes:
        earlier = declare(spec, workload, shapes, step)
    return bind(spec, earlier, stored, machine, opener), earlier


# ---- on the loop: against what other jobs have at that moment


def refusal(checked: CheckedJob, pending: PendingOutputs) -> ErrorRecord | None:
    """Return why a new job can't be queued; None if it can. On the loop's thread."""
    try:
        _check_checkpoint(checked, pending)
    except (TryAgain, UsageError) as error:
        return to_record(error)
    return None


def _check_checkpoint(checked: CheckedJob, pending: PendingOutputs) -> None:
    """Check that no job that may run meanwhile writes the same checkpoint."""
    spec = checked.spec
    if not checked.checkpoint:
        return
    earlier = {dependency.job for dependency in spec.after}
    others = pending.with_checkpoint(checked.checkpoint).difference(earlier)
    if others:
        raise UsageError(
            f"{spec.checkpoint}: job {min(others)} writes its checkpoints there; give another"
            " name, or run this job after that one"
        )


def hold_segments(arena: Arena, spec: JobSpec) -> list[int]:
    """Retain every segment named in `spec`, or none on error; return the segments."""
    segments: list[int] = []
    try:
        for ref in arena_refs(spec):
            _check(arena, ref)
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


def _check(arena: Arena, ref: ArenaRef) -> None:
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
