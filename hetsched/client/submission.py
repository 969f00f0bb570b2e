"""Submission of jobs with arrays, shared by the daemon's client and the embedded engine."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hetsched.client import validation
from hetsched.client.job import Job, Listener
from hetsched.client.job_request import ArrayOrPath, PreparedJob, SharedArrays, numeric, prepare


class JobSubmitter(ABC):
    """The methods that `Client` and `Local` share. `_segments`: their source of shared memory."""

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
        arrays: ArrayOrPath | Mapping[str, ArrayOrPath] | None = None,
        *,
        out: ArrayOrPath | Mapping[str, ArrayOrPath] | None = None,
        devices: str | Sequence[str] = (),
        memory_limit: int | str | None = None,
        verify: bool = False,
        seed: int = 0,
        priority: int = 0,
        force: bool = False,
        follow: Listener | None = None,
        **params: Any,
    ) -> Job:
        """Submit a job and return once it has been accepted.

        Parameters
        ----------
        workload : str
            A workload's name, or ``module:qualname``.
        arrays : array, path, mapping of name to array or path, or None
            Inputs. C-contiguous parts of arrays from `empty` are used in place, others are copied
            once; a path names a ``.npy`` file. None: generated.
        out : array, path, mapping of name to array or path, or None
            Where results go. None: new shared arrays.
        devices : str ("cpu,gpu0") or sequence of str
            Devices and groups to use; default: all.
        memory_limit : int, bytes, at least 1; or str ("256MiB")
            Of each device's own memory to use.
        verify : bool
            Check every unit; the job fails (JobFailed) if any is wrong.
        seed : int, 0 to 2**63-1, of generated inputs
        priority : int, -20 to 19; not used yet
        force : bool
            Overwrite output files that exist.
        follow : callable
            Called with every state of the job, on the thread that serves this client.
        **params
            The workload's own parameters; those implied by the inputs are optional.

        Raises
        ------
        HetschedError
            UsageError for a wrong type or range or in a job's callback; DataError, ...
        """
        prepared = prepare(
            self._segments, workload, arrays, out, params, devices=devices, verify=verify,
            memory_limit=memory_limit, seed=seed, priority=priority, force=force,
        )  # fmt: skip
        return self._start(prepared, follow)
