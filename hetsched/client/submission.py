"""Submission of jobs with arrays, shared by the daemon's client and the embedded engine."""

from __future__ import annotations

import datetime
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hetsched.client import validation
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
        **params: Any,
    ) -> Job:
        """Submit a job and return once it has been accepted.

        Parameters
        ----------
        workload : str
            A workload's name, or ``module:qualname``.
        arrays : array, path, sparse matrix, mapping of name to these, or None
            Inputs; None: generated. C-contiguous parts of arrays from `empty` are used in place,
            others are copied once; a path names a ``.npy`` file. A sparse matrix of SciPy may have
            any format.
        out : array, path, mapping of name to array or path, or None
            Where results go. None: new shared arrays.
        devices : str ("cpu,gpu0") or sequence of str; default: all devices
        memory_limit : int, bytes, at least 1; or str ("256MiB"), of each device's own memory
        verify : bool
            Check every unit; the job fails (JobFailed) if any is wrong.
        seed : int, 0 to 2**63-1, of generated inputs
        force : bool
            Overwrite output files that exist.
        follow : callable
            Called with every state of the job, on the thread that serves this client.
        priority, label, id, after, retries, timeout, deadline, hold
            The job's place in the queue: see `JobSubmitter`.
        **params
            The workload's own parameters; those implied by the inputs are optional.

        Raises
        ------
        HetschedError
            UsageError for a wrong type or range or in a job's callback; DataError, ...
        """
        queue = queue_fields(priority, label, id, after, retries, timeout, deadline, hold)
        prepared = prepare(
            self._segments, workload, arrays, out, params, devices=devices, verify=verify,
            memory_limit=memory_limit, seed=seed, force=force, queue=queue,
        )  # fmt: skip
        return self._start(prepared, follow)
