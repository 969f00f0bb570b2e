"""Admits jobs: on the loop where that takes microseconds, in the pool's threads otherwise.

A job without files whose kind is known (same workload, parameters and shapes) needs neither a
file nor the code of a plug-in. Everything else may hang: it is done in a thread, with a deadline.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable

from hetsched.bounded_cache import BoundedCache
from hetsched.engine.admission.array_binding import check_outputs, open_inputs
from hetsched.engine.admission.checked_job import CheckedJob, check, open_job
from hetsched.engine.admission.declaration import (
    Declaration,
    declaration_bytes,
    declaration_key,
    has_files,
)
from hetsched.engine.admission.input_opener import InputOpener
from hetsched.engine.admission.pending_outputs import PendingOutputs
from hetsched.engine.admission.resolve import MachineLimits, bind
from hetsched.engine.admission.resolved_job import ResolvedJob
from hetsched.engine.planning.planner_thread import run_inline
from hetsched.engine.threads.step import Step
from hetsched.engine.threads.worker_pool import Task, WorkerPool
from hetsched.errors import HetschedError
from hetsched.job import JobSpec
from hetsched.store.matrices.matrix_file import reading_seconds
from hetsched.workload import Iterative

OnChecked = Callable[[CheckedJob | None, BaseException | None], None]
OnOpened = Callable[[ResolvedJob | None, BaseException | None], None]
Abandon = Callable[[HetschedError], None]
_Check = tuple[JobSpec, OnChecked, bool]

MAX_DECLARATION_BYTES = 4 << 20
"""Of the declarations that are kept, with their keys. Arbitrary."""
MIN_ALLOCATION_RATE = 50e6
"""Bytes per second: a file system without fallocate allocates by writing. Arbitrary."""


class Admission:
    """Checks and opens the jobs of one engine. On the loop's thread only.

    Parameters
    ----------
    files : WorkerPool
    machine : callable
        Returns the present limits.

    Attributes
    ----------
    pending : PendingOutputs
        Of all unfinished jobs; kept up to date by the scheduler.
    """

    def __init__(self, files: WorkerPool, machine: Callable[[], MachineLimits]) -> None:
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
