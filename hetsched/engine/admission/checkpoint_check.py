"""Checks the checkpoints that a job names, when it is submitted."""

from __future__ import annotations

import os

import numpy as np

from hetsched.engine.admission.input_opener import LOADED_KEY
from hetsched.engine.admission.resolved_job import ResolvedJob
from hetsched.engine.threads.step import Step
from hetsched.errors import UsageError
from hetsched.iterations.saved_state import saved_bytes
from hetsched.job import FileOut, JobSpec
from hetsched.store.checkpoints.checkpoint_file import (
    check_folder,
    check_iteration,
    check_target,
    read_record,
)
from hetsched.store.checkpoints.record import InputIdentity, Problem, check_problem, problem_of
from hetsched.workload import Iterative


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

    Raises
    ------
    UsageError, InputMissing, DataError, CantCreate, IOFailure
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
