"""The two steps of admission: `check` at submission, `open_job` when the job's turn comes.

Between them no file is open: inputs are read as they are at the turn, and a long queue takes
neither descriptors nor disk space. Both steps may block.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import dataclass

from hetsched.engine.admission.array_binding import check_outputs
from hetsched.engine.admission.checkpoint_check import check_checkpoints
from hetsched.engine.admission.declaration import Declaration, has_files
from hetsched.engine.admission.input_opener import InputOpener
from hetsched.engine.admission.pending_outputs import PendingOutputs
from hetsched.engine.admission.resolve import MachineLimits, create_all, resolve_inputs
from hetsched.engine.admission.resolved_job import ResolvedJob
from hetsched.engine.threads.step import Step
from hetsched.job import JobSpec
from hetsched.store.arrays.output_files import OutputClaim


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

    Raises
    ------
    UsageError, DataError, InputMissing, Unavailable, CantCreate, IOFailure
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

    `token`: see `store/arrays/output_files.py`.

    Raises
    ------
    DataError, InputMissing, CantCreate, UsageError, Unavailable
    """
    opener = InputOpener(step, max_read=machine.arena_limit)
    try:
        job, _ = resolve_inputs(checked.spec, machine, opener, step, checked.declaration)
    except BaseException:
        opener.close()
        raise
    step.enter("creating output files")
    create_all(job, checked.spec, token)
    return job
