"""Submitting jobs of arrays: the same for the daemon's client and the embedded engine."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hetsched.client import validation
from hetsched.client.job import Job, Listener
from hetsched.client.job_request import Given, Request, Segments, numeric, prepare


class Submitting(ABC):
    """What `Client` and `Local` have in common. `_segments`: where their shared memory is from."""

    _segments: Segments

    @abstractmethod
    def _started(self, request: Request, follow: Listener | None) -> Job:
        """The job once it has been accepted. Raises HetschedError when it isn't."""

    def empty(self, shape: int | Sequence[int], dtype: Any = "complex64") -> np.ndarray:
        """A shared array, contents undefined: jobs read and write it without a copy.

        Parameters
        ----------
        shape : int or sequence of int
        dtype : anything that NumPy takes for one

        Raises
        ------
        UsageError
            The shape is none; the axis is said.
        DataError, TryAgain
            It can never be had; others hold too much at present.
        """
        return self._segments.empty(validation.extents(shape), numeric(dtype))

    def submit(  # noqa: PLR0913 - all of them keywords that a user may leave out
        self,
        workload: str,
        arrays: Given | Mapping[str, Given] | None = None,
        *,
        out: Given | Mapping[str, Given] | None = None,
        devices: str | Sequence[str] = (),
        memory_limit: int | str | None = None,
        verify: bool = False,
        seed: int = 0,
        priority: int = 0,
        force: bool = False,
        follow: Listener | None = None,
        **params: Any,
    ) -> Job:
        """Submit a job; returns once it has been accepted.

        Parameters
        ----------
        workload : str
            A workload's name, or ``module:qualname``.
        arrays : array, path, mapping of name to array or path, or None
            Inputs. C-contiguous parts of arrays from `empty` are used where they lie, others are
            copied in once; a path is that of a ``.npy`` file. None: generated.
        out : the same, where results go; None: new shared arrays
        devices : str ("cpu,gpu0") or sequence of str
            Names and groups that may be used; all by default.
        memory_limit : int, bytes, at least 1; or str ("256MiB")
            Of each device's own memory.
        verify : bool
            Check every unit; the job fails (JobFailed) if one is wrong.
        seed : int, 0 to 2**63-1, of generated inputs
        priority : int, -20 to 19; not used yet
        force : bool
            Overwrite output files that exist.
        follow : callable
            Hears every state of the job, on the thread that serves this client.
        **params
            The workload's own parameters; those that follow from the inputs may be left out.

        Raises
        ------
        HetschedError
            UsageError (at once, for a wrong type or range), DataError, InputMissing, ...
            UsageError too in a job's callback: that thread would have to hear the answer.
        """
        request = prepare(
            self._segments,
            workload,
            arrays,
            out,
            params,
            devices=devices,
            memory_limit=memory_limit,
            verify=verify,
            seed=seed,
            priority=priority,
            force=force,
        )
        return self._started(request, follow)
