"""Client operations without arrays. NumPy isn't imported, so `hetsched status` is fast."""

from __future__ import annotations

import itertools
import os
import weakref
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta
from msgspec.structs import asdict, replace

from hetsched import errors, paths
from hetsched.client import connection
from hetsched.client.job import Job, Listener
from hetsched.device import DeviceInfo
from hetsched.explain import Explanation
from hetsched.job import ArenaRef, Ended, JobSpec, JobState, checked
from hetsched.transport import messages
from hetsched.units import parse_time, quoted

T = TypeVar("T")
Self = TypeVar("Self", bound="Control")

TIMEOUT = 60.0
"""Seconds to wait for an answer: before a job is accepted, its files are opened."""
MAX_TIMEOUT = 2e6
"""Seconds: poll(2) counts milliseconds in 31 bits."""
RECONNECT_SECONDS = 60.0
"""How long clients look for the next daemon by default."""
HISTORY_PAGE = 500
"""Jobs of the past that are requested at once."""


class Control:
    """A connection to the daemon, for everything but arrays.

    Methods that take a job raise InputMissing if it isn't known, and those that change a waiting
    one raise UsageError if it no longer waits.

    Parameters
    ----------
    endpoint : path of the daemon's runtime folder; None: the user's own
    timeout : float, seconds, for each answer of the daemon, not for jobs
    reconnect : float, seconds; or None
        How long to look for the next daemon when this one stops; jobs continue there. 0: their
        Futures fail at once. None: HETSCHED_RECONNECT, e.g. "10s", else 60 seconds.

    Raises
    ------
    Unavailable
        No daemon; the message has the path and the reason.
    UsageError, ConfigError, ProtocolError, NotPermitted
        A wrong argument; a path that is too long; a daemon of another version, or another user's.
    """

    def __init__(
        self,
        endpoint: str | os.PathLike[str] | None = None,
        timeout: float = TIMEOUT,
        reconnect: float | None = None,
    ) -> None:
        path = paths.session_path()
        if endpoint is not None:
            folder = os.fspath(endpoint) if isinstance(endpoint, os.PathLike) else endpoint
            if not isinstance(folder, str) or "\0" in folder:
                raise errors.UsageError(
                    f"endpoint: {quoted(endpoint)} should be the path of a runtime folder"
                )
            path = Path(folder).absolute() / path.name
        times = checked(_Times, timeout=timeout, reconnect=_reconnect(reconnect))
        self._connection = connection.Connection(path, times.timeout, times.reconnect)
        prefix = os.urandom(8).hex()  # no other client has the same keys
        self._keys = (f"{prefix}-{number}" for number in itertools.count(1))
        self._finalizer = weakref.finalize(self, self._connection.close)

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Disconnect. Jobs continue, but their Futures here fail. Arrays stay valid."""
        self._finalizer()

    # ---- the daemon and its devices

    def ping(self) -> messages.Pong:
        """Return the daemon's pid, version and uptime."""
        return self._ask(messages.Ping(), messages.Pong)

    def drain(
        self, *, stop: bool = False, now: bool = False, undo: bool = False
    ) -> messages.Draining:
        """Let the daemon accept no new jobs, or with `undo` accept them again.

        `stop`: end it as soon as no job runs or could start. `now`: end it now; running jobs stop
        after their current chunks.
        """
        return self._ask(messages.Drain(stop, now, undo), messages.Draining)

    def metrics(self) -> str:
        """Return counters and gauges of the daemon, its jobs and devices, as Prometheus text."""
        return self._ask(messages.Metrics(), messages.MetricText).text

    def overview(self, waiting: int = 50) -> messages.DaemonOverview:
        """Return running jobs, the first `waiting` ones that wait, and what devices do."""
        return self._ask(messages.Overview(waiting), messages.DaemonOverview)

    def devices(self) -> tuple[tuple[DeviceInfo, ...], dict[str, str]]:
        """Return the daemon's devices, and missing devices with the reason."""
        listed = self.device_list()
        return listed.devices, listed.absent

    def device_list(self, *, probe: bool = False) -> messages.DeviceList:
        """Return the daemon's devices, with the reasons why some take no jobs.

        `probe`: first look for missing devices, and give those that failed another chance.
        """
        return self._ask(messages.Devices(probe), messages.DeviceList)

    def switch_devices(
        self, enable: str | Sequence[str] = (), disable: str | Sequence[str] = ()
    ) -> messages.DeviceList:
        """Let the daemon's devices take jobs, or none, until it stops; return all devices.

        Running iterative jobs follow at once; others use the devices that they have begun with.
        Raises UsageError for an unknown device; nothing has changed then.
        """
        names = [tuple(n.split(",")) if isinstance(n, str) else n for n in (enable, disable)]
        request = checked(messages.Devices, enable=names[0], disable=names[1])
        return self._ask(request, messages.DeviceList)

    # ---- jobs

    def status(
        self, states: Sequence[str] = (), limit: int | None = None, jobs: Sequence[int] = ()
    ) -> tuple[messages.JobLine, ...]:
        """Return the jobs that the daemon remembers, oldest first; with `limit` the newest ones.

        `states`: of "queued", "held", "running", "done", "failed", "cancelled"; default: all.
        `jobs`: only these numbers, if there are any.
        """
        request = checked(messages.Status, states=_listed(states), jobs=_listed(jobs))
        return self._pages(request, limit)

    def history(
        self, states: Sequence[str] = (), since: float | None = None, limit: int = 100
    ) -> tuple[messages.JobLine, ...]:
        """Return the newest `limit` jobs of the past, oldest first; `states` as for `status`.

        `since`: only jobs submitted then, in seconds since the epoch, or later.
        """
        if not isinstance(limit, int) or limit < 1:
            raise errors.UsageError(
                f"limit: {quoted(limit)} should be an integer from 1 to 2**63-1"
            )
        request = checked(messages.History, states=_listed(states), since=since)
        return self._pages(request, limit)

    def _pages(
        self, request: messages.Status | messages.History, limit: int | None
    ) -> tuple[messages.JobLine, ...]:
        """Return the newest `limit` jobs of a list that the daemon sends in pages."""
        lines: list[messages.JobLine] = []
        while limit is None or len(lines) < limit:
            if limit is not None and isinstance(request, messages.History):
                request = replace(request, limit=min(limit - len(lines), HISTORY_PAGE))
            page = self._ask(request, messages.JobList)
            lines[:0] = page.jobs
            if not page.has_earlier or not page.jobs:
                break
            request = replace(request, before=page.jobs[0].job)
        return tuple(lines if limit is None else lines[max(0, len(lines) - limit) :])

    def show(self, job: int) -> JobState:
        """Return the state of job number `job`."""
        return self._ask(messages.Show(job), messages.State).state

    def explain(self, job: int) -> Explanation:
        """Explain job number `job`; a running one up to now. Raises TryAgain before its start."""
        return self._explain(job, None)

    def _explain(self, job: int, seconds: float | None) -> Explanation:
        return self._ask(messages.Explain(job), messages.Explained, seconds).explanation

    def hold(self, job: int) -> messages.Changed:
        """Keep waiting job number `job` from starting until `release`."""
        return self._ask(messages.Hold(job), messages.Changed)

    def release(self, job: int) -> messages.Changed:
        """Let held job number `job` start when its turn comes."""
        return self._ask(messages.Hold(job, False), messages.Changed)

    def prioritize(self, job: int, priority: int) -> messages.Changed:
        """Give waiting job number `job` another priority, -20 to 19; larger ones run first."""
        return self._ask(
            checked(messages.Prioritize, job=job, priority=priority), messages.Changed
        )

    def cancel(self, job: int) -> None:
        """Cancel job number `job`; a running one stops after its current chunks."""
        self._ask(messages.Cancel(job), messages.JobNumbers)

    def cancel_all(self) -> tuple[int, ...]:
        """Cancel all jobs that haven't ended, everyone's; return their numbers."""
        return self._ask(messages.Cancel(), messages.JobNumbers).jobs

    def retry(self, job: int, *, force: bool = False) -> int:
        """Submit ended job number `job` again, without its id and dependencies; return the number.

        `force`: it replaces output files that exist. Raises InputMissing if what it needs is gone,
        such as arrays of another client.
        """
        return self._ask(messages.Retry(job, next(self._keys), force), messages.Accepted).job

    def clean(self, states: Sequence[str] = (), older: float = 0.0) -> tuple[int, ...]:
        """Forget jobs that ended `older` seconds ago or earlier, and their results in memory."""
        request = checked(messages.Clean, states=_listed(states), older=older)
        return self._ask(request, messages.JobNumbers).jobs

    def events(
        self, callback: connection.OnEvent, jobs: Sequence[int] = ()
    ) -> connection.EventFollower:
        """Call ``callback(sequence, state)`` for each state of `jobs`, or of all.

        On the thread that serves this client. Present states come first if `jobs` are given, and
        the follower is done when all have ended. The daemon drops what the callback is too slow
        for.
        """
        follower = connection.EventFollower(callback, jobs)
        self._connection.send(follower)
        return follower

    def job(self, job: int) -> Job:
        """Return the Future of any client's job number `job`."""
        return self._request_job(job)

    def follow(self, job: int, callback: Listener) -> Job:
        """As `job`; `callback` gets the present state and each new one, on another thread."""
        return self._request_job(job, follow=callback)

    def submit_spec(self, spec: JobSpec, follow: Listener | None = None) -> Job:
        """Submit `spec` as it is. Raises the daemon's error if it is refused."""
        return self._request_job(checked(JobSpec, **asdict(spec)), follow=follow)

    def _request_job(
        self,
        wanted: JobSpec | int,
        fetch: Callable[[Ended], Any] | None = None,
        follow: Listener | None = None,
        renew: connection.Renew | None = None,
    ) -> Job:
        """Submit a job, or follow the one with a number."""
        request = (
            messages.Follow(wanted)
            if isinstance(wanted, int)
            else messages.Submit(wanted, key=next(self._keys))
        )
        # Of methods: a job keeps the client alive.
        job = Job(
            cancel=self._cancel_soon,
            fetch=fetch or self._fetch,
            explain=self._explain,
            release=self.release,
            view=self._view,
            follow=follow,
        )
        self._connection.ask(connection.JobRequest(request, job, renew))
        return job

    def _cancel_soon(self, job: int) -> None:
        self._connection.send(connection.OpenRequest(messages.Cancel(job), messages.JobNumbers))

    def _fetch(self, end: Ended) -> Any:
        """Return what a job's `result` returns: references to arrays here, not the arrays."""
        return {**end.results, **{n: Path(path) for n, path in end.report.outputs.items()}}

    def _view(self, ref: ArenaRef) -> Any:
        return ref

    def _ask(self, request: messages.Request, kind: type[T], seconds: float | None = None) -> T:
        answer: T = self._connection.ask(connection.OpenRequest(request, kind), seconds)
        return answer


class _Times(msgspec.Struct):
    timeout: Annotated[
        float,
        Meta(gt=0, le=MAX_TIMEOUT, description=f"seconds, above 0 and at most {MAX_TIMEOUT:.0f}"),
    ]
    reconnect: Annotated[
        float, Meta(ge=0, le=MAX_TIMEOUT, description=f"seconds from 0 to {MAX_TIMEOUT:.0f}")
    ]


def _reconnect(value: Any) -> Any:
    variable = os.environ.get("HETSCHED_RECONNECT")
    if value is None and variable:
        try:
            return min(parse_time(variable), MAX_TIMEOUT)
        except errors.UsageError as error:
            raise errors.UsageError(f"HETSCHED_RECONNECT: {error}") from None
    return RECONNECT_SECONDS if value is None else value


def _listed(values: Any) -> Any:
    """Return them as a tuple, unless they are what a request refuses, as a string is."""
    is_list = isinstance(values, Iterable) and not isinstance(values, str)
    return tuple(values) if is_list else values
