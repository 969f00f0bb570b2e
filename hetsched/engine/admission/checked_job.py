"""The two steps of admission: `check` at submission, `open_job` when the job's turn comes.

Between them no file is open: inputs may be replaced by earlier jobs, and a long queue takes
neither descriptors nor disk space. Both steps may block.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from hetsched.engine.admission.array_binding import check_outputs
from hetsched.engine.admission.checkpoint_check import check_checkpoints
from hetsched.engine.admission.declaration import Declaration, has_files
from hetsched.engine.admission.input_opener import InputOpener
from hetsched.engine.admission.pending_outputs import PendingOutputs, WrittenFiles
from hetsched.engine.admission.resolve import MachineLimits, create_all, resolve_inputs
from hetsched.engine.admission.resolved_job import ResolvedJob
from hetsched.engine.threads.step import Step
from hetsched.job import JobSpec
from hetsched.store.arrays.file_stamp import FileStamp
from hetsched.store.arrays.output_check import OutputClaim


@dataclass(frozen=True, eq=False)
class CheckedJob:
    """A request that could run when it was submitted.

    Attributes
    ----------
    job : ResolvedJob
        As bound at submission; its files are closed.
    machine : MachineLimits
        At submission.
    stamps : mapping
        Array name -> its input file as it was at submission, for the journal.
    claims : tuple of OutputClaim
        The output files.
    input_paths : tuple of str
        The input files; links resolved.
    checkpoint : str
        The file of its checkpoints, links resolved; "": none.
    """

    spec: JobSpec
    declaration: Declaration
    job: ResolvedJob
    machine: MachineLimits
    stamps: Mapping[str, FileStamp] = field(default_factory=dict)
    claims: tuple[OutputClaim, ...] = ()
    input_paths: tuple[str, ...] = ()
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
    recorded: Mapping[str, FileStamp] | None = None,
) -> CheckedJob:
    """Check everything about `spec` that can be known before it runs.

    Parameters
    ----------
    pending : PendingOutputs
        Of the other jobs: inputs may be written by the jobs that this one comes after.
    recorded : mapping or None
        The stamps of an earlier check (the daemon has been restarted since), to be kept.

    Raises
    ------
    UsageError, DataError, InputMissing, Unavailable, CantCreate, IOFailure
    """
    after: Collection[int] = {dependency.job for dependency in spec.after}
    opener = InputOpener(step, pending=pending, after=after)
    try:
        job, declaration = resolve_inputs(spec, machine, opener, step)
        step.enter("checking the output folder")
        claims = check_outputs(job, spec, pending.claimed)
        check_checkpoints(job, spec, step, is_readmitted=recorded is not None)
    finally:
        opener.close()
    stamps = {**opener.stamps, **(recorded or {})}
    paths = tuple(opener.paths)
    checkpoint = os.path.realpath(spec.checkpoint) if spec.checkpoint else ""
    return CheckedJob(spec, declaration, job, machine, stamps, claims, paths, checkpoint)


def open_job(
    checked: CheckedJob,
    machine: MachineLimits,
    written: WrittenFiles,
    step: Step,
    token: str = "",
) -> ResolvedJob:
    """Open the inputs as they are now, and create the outputs with all their space.

    `token`: see `store/arrays/output_files.py`.

    Raises
    ------
    DataError
        An input has changed since the submission, and not by an earlier job (`written`).
    InputMissing, CantCreate, UsageError, Unavailable
    """
    opener = InputOpener(
        step, expected=checked.stamps, written=written, max_read=machine.arena_limit
    )
    try:
        job, _ = resolve_inputs(checked.spec, machine, opener, step, checked.declaration)
    except BaseException:
        opener.close()
        raise
    step.enter("creating output files")
    create_all(job, checked.spec, token)
    return job
