"""Everything that a client can do without arrays. Imports no NumPy: `hetsched status` is fast."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from hetsched import paths
from hetsched.client import validation
from hetsched.client.connection import Connection
from hetsched.client.job import Job, Listener
from hetsched.client.requests import cancel, devices, explain, follow, ping, show, status, submit
from hetsched.device import DeviceInfo
from hetsched.explain import Explanation
from hetsched.job import Done, JobSpec, JobState
from hetsched.transport.messages import JobLine, Pong

Self = TypeVar("Self", bound="Control")

TIMEOUT = 60.0
"""Seconds to wait for an answer: a job is accepted only after its files have been looked at."""


class Control:
    """A connection to the daemon, for everything but arrays.

    Parameters
    ----------
    endpoint : path or None
        The daemon's runtime folder; None: the user's own.
    timeout : float, seconds
        For each answer of the daemon; jobs may last as long as they like.

    Raises
    ------
    UsageError
        The endpoint is no path, or the timeout no time.
    Unavailable
        No daemon; the message says by which path and why.
    ProtocolError
        One of a version that can't talk with this one.
    ConfigError, NotPermitted
        The path is too long; the daemon is somebody else's.
    """

    def __init__(
        self, endpoint: str | os.PathLike[str] | None = None, timeout: float = TIMEOUT
    ) -> None:
        path = paths.session_path()
        if endpoint is not None:
            path = Path(validation.endpoint(endpoint)).absolute() / path.name
        self._connection = Connection(path, validation.timeout(timeout))
        self._finalizer = weakref.finalize(self, self._connection.close)

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Leave the daemon. Its jobs go on; their Futures here fail. Arrays stay valid."""
        self._finalizer()

    def ping(self) -> Pong:
        """Who the daemon is, and since when."""
        return ping.ping(self._connection)

    def status(self) -> tuple[JobLine, ...]:
        """All jobs that the daemon remembers, the first accepted first."""
        return status.status(self._connection)

    def show(self, job: int) -> JobState:
        """The present state of job number `job`. Raises InputMissing."""
        return show.show(self._connection, job)

    def cancel(self, job: int) -> None:
        """End job number `job`, a running one at a chunk's edge. Raises InputMissing."""
        cancel.cancel(self._connection, job)

    def explain(self, job: int) -> Explanation:
        """What became of job number `job` and why, of a running one so far.

        Raises InputMissing, or TryAgain while it hasn't begun.
        """
        return explain.explain(self._connection, job)

    def devices(self) -> tuple[tuple[DeviceInfo, ...], dict[str, str]]:
        """The daemon's devices; and those that aren't there, with the reason."""
        return devices.devices(self._connection)

    def job(self, job: int) -> Job:
        """The Future of job number `job`, whoever submitted it. Raises InputMissing."""
        return follow.follow(self._connection, job, self._cancel_soon, self._fetch)

    def follow(self, job: int, callback: Listener) -> Job:
        """As `job`; `callback` hears the present state and each new one, on another thread."""
        return follow.follow(self._connection, job, self._cancel_soon, self._fetch, callback)

    def start(
        self,
        spec: JobSpec,
        fetch: Callable[[Done], Any] | None = None,
        follow: Listener | None = None,
    ) -> Job:
        """Have `spec` accepted as it is. Raises HetschedError, as the daemon decides."""
        return submit.submit(
            self._connection, spec, self._cancel_soon, fetch or self._fetch, follow
        )

    def _cancel_soon(self, job: int) -> None:
        """For jobs, which so hold the client: it lives until the last of them is forgotten."""
        cancel.cancel_soon(self._connection, job)

    def _fetch(self, done: Done) -> Any:
        """What a job's `result` returns: here where results are, not the arrays."""
        return {**done.results, **{n: Path(path) for n, path in done.report.outputs.items()}}
