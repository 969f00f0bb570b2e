"""The daemon's client: arrays in shared memory, jobs as Futures."""

from __future__ import annotations

import os
from typing import Any

from hetsched.client.control import TIMEOUT, Control
from hetsched.client.job import Job, Listener
from hetsched.client.memory import ArrayRenewal, SharedMemory
from hetsched.client.request import JobSubmitter, PreparedJob
from hetsched.job import Done, JobSpec


class Client(JobSubmitter, Control):
    """A connection to the daemon, arrays included. `Control` documents its parameters.

    Any thread may use it. One background thread serves it until `close`, or the end of the `with`.
    Arrays stay valid after that.
    """

    _segments: SharedMemory

    def __init__(
        self,
        endpoint: str | os.PathLike[str] | None = None,
        timeout: float = TIMEOUT,
        reconnect: float | None = None,
    ) -> None:
        super().__init__(endpoint, timeout, reconnect)
        self._segments = SharedMemory(self._connection.session)

    def _start(self, prepared: PreparedJob, follow: Listener | None) -> Job:
        renewal = ArrayRenewal(self._segments, prepared.spec)
        return self._submit(prepared.spec, prepared.result, follow, renewal)

    def _fetch(self, done: Done) -> Any:
        return PreparedJob(JobSpec(workload="", params={}), self._segments).result(done)
