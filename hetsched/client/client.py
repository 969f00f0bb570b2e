"""The daemon's client: arrays in shared memory, jobs as Futures."""

from __future__ import annotations

import os
from typing import Any

from hetsched.client.control import TIMEOUT, Control
from hetsched.client.job import Job, Listener
from hetsched.client.job_request import Request
from hetsched.client.shared_memory import SharedMemory
from hetsched.client.submission import Submitting
from hetsched.job import Done, JobSpec


class Client(Submitting, Control):
    """A connection to the daemon. `Control` says what it takes and can do besides arrays.

    Any thread may use it. One background thread serves it; `close`, or the end of the `with`, ends
    that. Arrays stay valid for as long as they live.
    """

    _segments: SharedMemory

    def __init__(
        self, endpoint: str | os.PathLike[str] | None = None, timeout: float = TIMEOUT
    ) -> None:
        super().__init__(endpoint, timeout)
        self._segments = SharedMemory(self._connection.session)

    def _started(self, request: Request, follow: Listener | None) -> Job:
        job = self.start(request.spec, request.result, follow)
        request.held.clear()  # from now on the daemon holds what the job needs
        return job

    def _fetch(self, done: Done) -> Any:
        return Request(JobSpec(workload="", params={}), self._segments).result(done)
