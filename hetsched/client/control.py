"""Client operations without arrays. NumPy isn't imported, so `hetsched status` is fast."""

from __future__ import annotations

import itertools
import os
import secrets
import weakref
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from hetsched import paths
from hetsched.client import validation
from hetsched.client.connection import Connection
from hetsched.client.job import Job, Listener
from hetsched.client.queue.queue_control import QueueControl
from hetsched.client.requests import (
    cancel,
    devices,
    explain,
    follow,
    ping,
    show,
    submit,
)
from hetsched.client.requests.inspection import metrics, overview
from hetsched.device import DeviceInfo
from hetsched.explain import Explanation
from hetsched.job import Done, JobSpec, JobState
from hetsched.transport.inspection.metric_records import Metric
from hetsched.transport.messages import DaemonOverview, DeviceList, Pong, Submit

Self = TypeVar("Self", bound="Control")

TIMEOUT = 60.0
"""Seconds to wait for an answer: before a job is accepted, its files are opened."""


class Control(QueueControl):
    """A connection to the daemon, for everything but arrays.

    Parameters
    ----------
    endpoint : path or None
        The daemon's runtime folder; None: the user's own.
    timeout : float, seconds
        For each answer of the daemon, not for jobs.
    reconnect : float, seconds; or None
        How long to look for the next daemon when this one stops; jobs continue there. 0: their
        Futures fail at once. None: HETSCHED_RECONNECT, e.g. "10s", else 60 seconds.

    Raises
    ------
    UsageError
        The endpoint isn't a path, or the timeout isn't a time.
    Unavailable
        No daemon; the message has the path and the reason.
    ProtocolError
        The daemon's version is incompatible.
    ConfigError, NotPermitted
        The path is too long; the daemon is another user's.
    """

    def __init__(
        self,
        endpoint: str | os.PathLike[str] | None = None,
        timeout: float = TIMEOUT,
        reconnect: float | None = None,
    ) -> None:
        path = paths.session_path()
        if endpoint is not None:
            path = Path(validation.endpoint(endpoint)).absolute() / path.name
        seconds = validation.reconnect(reconnect, os.environ.get("HETSCHED_RECONNECT"))
        self._connection = Connection(path, validation.timeout(timeout), seconds)
        self._keys = _keys()
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
        """Disconnect. Jobs continue, but their Futures here fail. Arrays stay valid."""
        self._finalizer()

    def ping(self) -> Pong:
        """Return the daemon's pid, version and uptime."""
        return ping.ping(self._connection)

    def show(self, job: int) -> JobState:
        """Return the state of job number `job`. Raises InputMissing if it isn't known."""
        return show.show(self._connection, job)

    def cancel(self, job: int) -> None:
        """Cancel job number `job`; a running one stops after its current chunks.

        Raises InputMissing if it isn't known.
        """
        cancel.cancel(self._connection, job)

    def explain(self, job: int) -> Explanation:
        """Explain job number `job`; a running one up to now.

        Raises InputMissing if it isn't known, TryAgain if it hasn't started.
        """
        return explain.explain(self._connection, job)

    def devices(self) -> tuple[tuple[DeviceInfo, ...], dict[str, str]]:
        """Return the daemon's devices, and missing devices with the reason."""
        listed = devices.devices(self._connection)
        return listed.devices, listed.absent

    def device_list(self, *, probe: bool = False) -> DeviceList:
        """Return the daemon's devices, with the reasons why some take no jobs.

        `probe`: first look for missing devices, and give those that failed another chance.
        """
        return devices.devices(self._connection, probe=probe)

    def switch_devices(
        self, enable: str | Sequence[str] = (), disable: str | Sequence[str] = ()
    ) -> DeviceList:
        """Let the daemon's devices take jobs, or none, until it stops; return all devices.

        Running iterative jobs follow at once: a disabled device gives its rows to the others, and
        an enabled one gets its share. Other jobs use the devices that they have begun with.

        Raises
        ------
        UsageError
            An unknown device; nothing has changed.
        """
        names = (validation.devices(enable), validation.devices(disable))
        return devices.devices(self._connection, enable=names[0], disable=names[1])

    def metrics(self) -> tuple[Metric, ...]:
        """Return counters and gauges of the daemon, its jobs and its devices."""
        return metrics.metrics(self._connection)

    def overview(self, waiting: int = 50) -> DaemonOverview:
        """Return running jobs, the first `waiting` ones that wait, and what devices do."""
        return overview.overview(self._connection, waiting)

    def job(self, job: int) -> Job:
        """Return the Future of any client's job number `job`. Raises InputMissing."""
        return follow.follow(self._connection, job, self._cancel_soon, self._fetch)

    def follow(self, job: int, callback: Listener) -> Job:
        """As `job`; `callback` gets the present state and each new one, on another thread."""
        return follow.follow(self._connection, job, self._cancel_soon, self._fetch, callback)

    def start(
        self,
        spec: JobSpec,
        fetch: Callable[[Done], Any] | None = None,
        follow: Listener | None = None,
        renewal: submit.Renewal | None = None,
    ) -> Job:
        """Submit `spec` unchanged. Raises the daemon's error if it is refused."""
        request = Submit(spec, key=next(self._keys))
        return submit.submit(
            self._connection, request, self._cancel_soon, fetch or self._fetch, follow, renewal
        )

    def _cancel_soon(self, job: int) -> None:
        """Cancel without waiting. Jobs hold this method, and so keep the client alive."""
        cancel.cancel_soon(self._connection, job)

    def _fetch(self, done: Done) -> Any:
        """Return what a job's `result` returns: references to arrays here, not the arrays."""
        return {**done.results, **{n: Path(path) for n, path in done.report.outputs.items()}}


def _keys() -> Iterator[str]:
    """Yield a key for each submission, which no other client uses."""
    prefix = secrets.token_hex(8)
    return (f"{prefix}-{number}" for number in itertools.count(1))
