"""Submission of jobs with arrays, shared by the daemon's client and the embedded engine."""

from __future__ import annotations

import datetime
import operator
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hetsched.client import validation
from hetsched.client.iterations.arguments import iteration_fields
from hetsched.client.job import Job, Listener
from hetsched.client.job_request import (
    ArrayOrPath,
    Inputs,
    PreparedJob,
    SharedArrays,
    numeric,
    prepare,
)
from hetsched.client.queue.queue_arguments import Earlier, queue_fields


class JobSubmitter(ABC):
    """The methods that `Client` and `Local` share. `_segments`: their source of shared memory.

    Parameters of `submit` that concern the queue
    ---------------------------------------------
    priority : int, -20 to 19
        Larger ones run first, as in Slurm (unlike nice).
    label : str
        For people, shown by `hetsched status`.
    id : str
        Your own name for this job: submitting it again finds the job instead of adding one.
    after : job, number, "12:any", "12:fail", or a sequence of them
        Run after these jobs have succeeded (or ended in any way; or failed). If that can no
        longer happen, this job fails.
    retries : int, 0 to 100
        Run a failed job again this often, unless it was cancelled or its request or data were
        wrong.
    timeout : float, seconds, or str ("10m")
        An attempt that runs longer fails.
    deadline : datetime or float, seconds since the epoch
        A job that hasn't ended by then fails.
    hold : bool
        Wait until the job is released.

    Parameters of `submit` that concern iterative jobs
    --------------------------------------------------
    balance : "auto", "functional", "constant", "imbalance-factor" or "none"
        How rows are shared out while the job runs; "none": the first split stays.
    warm_up : "dfpa", True for that, or None
        Measure all devices in short benchmarks before the first iteration.
    checkpoint : path or None
        Save the state to this file now and then.
    every : float, seconds, or str ("30s"); default 30
        Between two checkpoints.
    resume : path or None
        Continue from this checkpoint.
    """

    _segments: SharedArrays

    @abstractmethod
    def _start(self, prepared: PreparedJob, follow: Listener | None) -> Job:
        """Submit and return the accepted job. Raises HetschedError if it is refused."""

    def empty(self, shape: int | Sequence[int], dtype: Any = "complex64") -> np.ndarray:
        """Allocate a shared array, which jobs read and write without a copy. Contents undefined.

        Parameters
        ----------
        shape : int or sequence of int
        dtype : anything that numpy.dtype accepts

        Raises
        ------
        UsageError
            The shape is invalid; the message names the axis.
        DataError, TryAgain
            It exceeds the limit; too much shared memory is in use at present.
        """
        return self._segments.empty(validation.extents(shape), numeric(dtype))

    def submit(  # noqa: PLR0913 - optional keywords
        self,
        workload: str,
        arrays: Inputs = None,
        *,
        out: ArrayOrPath | Mapping[str, ArrayOrPath] | None = None,
        devices: str | Sequence[str] = (),
        memory_limit: int | str | None = None,
        verify: bool = False,
        seed: int = 0,
        priority: int = 0,
        force: bool = False,
        follow: Listener | None = None,
        label: str = "",
        id: str = "",
        after: Earlier | Sequence[Earlier] = (),
        retries: int = 0,
        timeout: float | str | None = None,
        deadline: float | datetime.datetime | None = None,
        hold: bool = False,
        balance: str = "auto",
        warm_up: str | bool | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        every: float | str | None = None,
        resume: str | os.PathLike[str] | None = None,
        **params: Any,
    ) -> Job:
        """Submit a job and return once it has been accepted.

        Parameters
        ----------
        workload : str, a name or ``module:qualname``
        arrays : array, path, sparse matrix, mapping of name to these, or None
            Inputs; None: generated. C-contiguous parts of arrays from `empty` are used in place,
            others are copied once; a path names a ``.npy`` file. A sparse matrix of SciPy may have
            any format.
        out : array, path, mapping of name to array or path, or None
            Where results go. None: new shared arrays.
        devices : str ("cpu,gpu0") or sequence of str; default: all devices
        memory_limit : int, bytes, at least 1; or str ("256MiB"), of each device's own memory
        verify : bool, check every unit; the job fails (JobFailed) if any is wrong
        seed : int, 0 to 2**63-1, of generated inputs
        force : bool, overwrite output files that exist
        follow : callable, gets every state of the job, on the thread that serves this client
        priority to hold, and balance to resume
            The job's place in the queue; options of iterative jobs: see `JobSubmitter`.
        **params : the workload's own parameters; those implied by the inputs are optional

        Raises
        ------
        HetschedError
            UsageError for a wrong type or range or in a job's callback; DataError, ...
        """
        queue = (priority, label, id, after, retries, timeout, deadline, hold)
        options = _options(queue, (balance, warm_up, checkpoint, every, resume))
        prepared = prepare(
            self._segments, workload, arrays, out, params, devices=devices, verify=verify,
            memory_limit=memory_limit, seed=seed, force=force, options=options,
        )  # fmt: skip
        return self._start(prepared, follow)


_QUEUE_DEFAULTS = (0, "", "", (), 0, None, None, False)
_ITERATION_DEFAULTS = ("auto", None, None, None, None)


def _options(queue: tuple[Any, ...], iterations: tuple[Any, ...]) -> dict[str, Any]:
    """Return the fields of a JobSpec; none for a job without options, as most are.

    Equal values that are other objects are checked, which costs a tenth of a millisecond.
    """
    values, defaults = (*queue, *iterations), (*_QUEUE_DEFAULTS, *_ITERATION_DEFAULTS)
    if all(map(operator.is_, values, defaults)):
        return {}
    return queue_fields(*queue) | iteration_fields(*iterations)
