"""A submitted job: a `concurrent.futures.Future` that also reports progress."""

from __future__ import annotations

import contextlib
import functools
import logging
import math
import os
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from concurrent import futures
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from hetsched import errors
from hetsched.device import Timeline
from hetsched.explain import Explanation
from hetsched.explain.records import IterationHistory
from hetsched.job import (
    ArenaRef,
    Done,
    Ended,
    Failed,
    Held,
    JobReport,
    JobState,
    Queued,
    Running,
)
from hetsched.text import columns, notebook_bundle
from hetsched.units import counted, format_seconds

if TYPE_CHECKING:
    import numpy as np

log = logging.getLogger(__name__)

HISTORY_SECONDS = 5.0
"""For the history in a result, which isn't worth a longer wait."""

AWAKE_SECONDS = 0.5
"""After which a wait looks for signals: one that comes just before a thread begins to sleep
doesn't wake it, so a Ctrl-C would be lost."""

Listener = Callable[[JobState], None]

FROM_CALLBACK = "can't be called from a callback, which would wait for itself; use another thread"
"""Error for waiting on the thread that delivers the jobs' states."""


def wait_awake(future: Future[Any], timeout: float | None) -> bool:
    """Wait for the end, and notice Ctrl-C; return False after `timeout` seconds.

    Raises CancelledError.
    """
    deadline = math.inf if timeout is None else time.monotonic() + timeout
    while not future.done():
        left = deadline - time.monotonic()
        if left <= 0:
            return False
        with contextlib.suppress(TimeoutError):
            Future.exception(future, min(left, AWAKE_SECONDS))  # a Job's own may ask the daemon
    return True


def check_process(pid: int) -> None:
    """Raise UsageError in a fork of process `pid`: it must not use the sockets that it shares."""
    if os.getpid() != pid:
        raise errors.UsageError(
            f"this client belongs to process {pid}, of which this one (pid {os.getpid()}) is a"
            " fork; create another client here"
        )


class SessionLost(errors.TryAgain):
    """The daemon has ended; the next one decides what becomes of open requests."""


class HeldJob(NamedTuple):
    """A job that is held after `iteration`: output name -> its present array, from which it goes
    on, and the seconds that its devices have taken for all iterations so far."""

    iteration: int
    seconds: float
    arrays: dict[str, np.ndarray]


def _hold_of(state: JobState) -> Held | None:
    return state.held if isinstance(state, Queued) and state.reason == "held" else None


class Job(Future[Any]):
    """Future of the job's result: an array, or a dict by name where there are several outputs.

    The result of an iterative job is an `IterativeResult`.

    Callbacks of `add_done_callback` and `follow` run on the thread that serves all jobs and must
    not block: `submit` and other requests raise UsageError there. Hand such work, and waiting for
    another job's `result`, to another thread.

    ``await job`` is its result, too; if the task that awaits it is cancelled, so is the job,
    unless `asyncio.shield` is between them.

    Attributes
    ----------
    id : int, the job's number
    durability : "durable" if it survives the daemon, "volatile" if not, "" if that isn't known
    """

    # `cancel` and `explain` take the job's number, the latter also the seconds after which it must
    # raise rather than wait, if any. `release` takes the number, too; `view` makes an array of a
    # reference. `fetch` makes the result of the last state, once, on the delivering thread.
    # `follow` gets all states, the first once the job has a number.
    def __init__(
        self,
        *,
        cancel: Callable[[int], None],
        fetch: Callable[[Ended], Any],
        explain: Callable[[int, float | None], Explanation],
        release: Callable[[int], object],
        view: Callable[[ArenaRef], Any],
        follow: Listener | None = None,
    ) -> None:
        super().__init__()
        self._pid = os.getpid()
        self.id, self.durability = 0, ""
        self._request_cancel, self._request_explanation = cancel, explain
        self._release, self._view = release, view
        self._held: Held | None = None
        self._views: dict[ArenaRef, Any] = {}
        self._has_news = threading.Condition()
        self._fetch: Callable[[Ended], Any] | None = fetch
        self._last_state: JobState = Queued(0, 0)
        self._listeners: list[Listener] = [] if follow is None else [follow]
        self._delivery_lock = threading.RLock()

    def __reduce__(self) -> Any:
        raise TypeError("a Job belongs to its process: pass its result, or its number")

    def __repr__(self) -> str:
        return f"<Job {self.id} {type(self._last_state).__name__.lower()}>"

    def _repr_mimebundle_(self, **choice: object) -> dict[str, str]:
        """Return what notebooks show: who computed what, once that is known."""
        lines = [repr(self)]
        if self.report is not None:
            rows = [
                (d.device, str(d.share), format_seconds(d.seconds)) for d in self.report.devices
            ]
            lines += columns(("device", "share", "time"), rows)
        return notebook_bundle("\n".join(lines))

    def __await__(self) -> Generator[Any, None, Any]:
        return self._awaited().__await__()

    async def _awaited(self) -> Any:
        from asyncio import CancelledError, to_thread, wrap_future

        check_process(self._pid)
        ended: Future[None] = Future()

        def on_end(job: Future[Any]) -> None:
            if ended.set_running_or_notify_cancel():
                ended.set_result(None)

        self.add_done_callback(on_end)
        try:
            await wrap_future(ended)
        except CancelledError:
            await to_thread(self.cancel)
            raise
        return await to_thread(self.result)  # it may ask for the history of iterations

    def progress(self) -> JobState:
        """Return the last known state."""
        return self._last_state

    @property
    def report(self) -> JobReport | None:
        """Return the job's report; None until it has ended."""
        return self._last_state.report if isinstance(self._last_state, Ended) else None

    def explain(self) -> Explanation:
        """Explain the job, a running one up to now; `str` of the result is readable text.

        Raises TryAgain before its start, InputMissing long after its end.
        """
        return self._request_explanation(self.id, None)

    def timeline(self) -> dict[str, Timeline]:
        """Return device -> start and end of its chunks' phases, in seconds from the first start.

        Raises as `explain`.
        """
        return {each.device: each.timeline for each in self.explain().devices if each.timeline}

    def follow(self, listener: Listener) -> None:
        """Call `listener(state)` with the present state, then each new one, on another thread."""
        with self._delivery_lock:
            self._listeners.append(listener)
            _notify(listener, self._last_state)

    def add_progress_callback(self, callback: Callable[[Running], object]) -> None:
        """Call `callback(state)` after each batch of iterations, on another thread.

        `state` has the last complete `iteration`, the `residual`, `iterations_per_second` and, in
        `devices`, the rows of each device. If it raises, that is logged and it isn't called again.
        """
        last: int | None = 0
        has_failed = False

        def on_state(state: JobState) -> None:
            nonlocal last, has_failed
            if has_failed or not isinstance(state, Running) or state.iteration in (None, last):
                return
            last = state.iteration
            has_failed = True
            callback(state)
            has_failed = False

        self.follow(on_state)

    def running(self) -> bool:
        return isinstance(self._last_state, Running)

    def cancel(self) -> bool:
        """Request cancellation; return False if the job has ended or the connection is lost.

        A running job stops after its current chunks; then `result` raises CancelledError.
        """
        if self.done():
            return self.cancelled()
        try:
            self._request_cancel(self.id)
        except errors.HetschedError:
            return self.cancelled()
        return True

    def result(self, timeout: float | None = None) -> Any:
        """Wait for the result and return it. `hetsched.errors` lists how a job can fail.

        That of an iterative job comes with the history of its iterations, except in a callback. If
        the daemon doesn't answer, that takes some seconds more than `timeout`.

        Raises
        ------
        concurrent.futures.CancelledError
        WaitTimeout
            After `timeout` seconds; the job continues.
        """
        try:
            self._wait(timeout)
            return super().result()
        finally:
            del self  # the job's error refers to this frame, and to its caller's arrays

    def next_hold(self, timeout: float | None = None) -> HeldJob | None:
        """Let the job go on, and wait until it is held after `hold_every` more iterations.

        Returns None if it has ended. Until the next call its arrays may be read and changed; it
        goes on from there. While it is held, other jobs run. Raises WaitTimeout after `timeout`
        seconds.
        """
        check_process(self._pid)  # in a forked child nothing would come
        last = self._last_state
        if self._held is not None and _hold_of(last) == self._held:
            try:
                self._release(self.id)
            except errors.HetschedError:
                if self._last_state == last and not self.done():  # else it has ended meanwhile
                    raise
        due = math.inf if timeout is None else time.monotonic() + timeout
        with self._has_news:
            while (held := _hold_of(self._last_state)) in (None, self._held) and not self.done():
                left = due - time.monotonic()
                if left <= 0:
                    raise errors.WaitTimeout(f"job {self.id} isn't held after {timeout:g} s")
                self._has_news.wait(min(left, AWAKE_SECONDS))
        if held is None or self.done():
            return None
        for ref in held.results.values():
            if ref not in self._views:
                self._views[ref] = self._view(ref)
        self._held = held
        arrays = {name: self._views[ref] for name, ref in held.results.items()}
        return HeldJob(held.iteration, held.seconds, arrays)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Return the job's error, or None. Raises CancelledError and WaitTimeout as `result`."""
        self._wait(timeout)
        return super().exception()

    def _wait(self, timeout: float | None) -> None:
        """Wait for the end, and ask for the history of its iterations while it can be had."""
        if not self.done():
            check_process(self._pid)  # in a forked child, the result would never come
        if not wait_awake(self, timeout):
            raise errors.WaitTimeout(
                f"job {self.id} hasn't ended after {timeout:g} s; it continues"
            )
        error = super().exception()
        value = error.result if isinstance(error, errors.JobFailed) else error or super().result()
        if type(value) is IterativeResult:  # isinstance takes a Python call here: it is a Mapping
            value.keep_history()

    def advance(self, state: JobState) -> None:
        """Take the next state. Raises SessionLost if its results have gone with the daemon."""
        if isinstance(self._last_state, Ended):
            return
        outcome = self._outcome(state) if isinstance(state, Ended) else None
        with self._delivery_lock:
            self._last_state = state
            for listener in self._listeners:
                _notify(listener, state)
        if not isinstance(state, Ended):
            if _hold_of(state) is not None:
                self._wake()
            return
        self._fetch, self._views = None, {}
        if isinstance(outcome, errors.Cancelled):
            super().cancel()
            self.set_running_or_notify_cancel()
        elif isinstance(outcome, Exception):
            self.set_exception(outcome)
        else:
            self.set_result(outcome)
        self._wake()

    def _wake(self) -> None:
        with self._has_news:
            self._has_news.notify_all()

    def accepted(self, ident: int, durability: str) -> None:
        """Note the number that the daemon, or the next one, has given to the job."""
        if self.id not in (0, ident):
            log.warning(
                "the daemon that was started meanwhile calls job %d job %d", self.id, ident
            )
        is_new, self.id = self.id == 0, ident
        self.durability = durability or self.durability
        if is_new:
            self.advance(Queued(ident, 0))

    def lost(self, error: errors.HetschedError) -> None:
        """Fail the job: there will be no more states."""
        report = JobReport(
            job=self.id, state="lost", workload="", load=0, error=errors.to_record(error)
        )
        self.advance(Failed(self.id, report, errors.ErrorRecord(error.code, str(error))))

    def _outcome(self, state: Ended) -> Any:
        """Return the result, or the exception to raise instead."""
        if isinstance(state, Done):
            if state.lost:
                return errors.InputMissing(state.lost)
            try:
                return self._value(state)
            except SessionLost:
                raise
            except Exception as error:
                return error
        failure = errors.from_record(state.error)
        is_kept = state.results or state.report.outputs
        if isinstance(failure, errors.JobFailed) and state.report.converged is False and is_kept:
            try:
                failure.result = self._value(state)
            except SessionLost:
                raise
            except Exception:
                log.exception("the last result of job %d is lost", self.id)
        return failure

    def _value(self, state: Ended) -> Any:
        assert self._fetch is not None
        value = self._fetch(state)
        if state.report.iterations is None:
            return value
        # Not a method: the job refers to its result, and arrays should be freed at once.
        explain = functools.partial(self._request_explanation, self.id)
        return IterativeResult(value, state.report, explain)


def as_completed(jobs: Iterable[Job], timeout: float | None = None) -> Iterator[Job]:
    """Yield jobs as they end, in whatever way; the `result` of each is there at once.

    Raises
    ------
    WaitTimeout
        Some haven't ended `timeout` seconds after the first was asked for; they continue.
    """
    waiting = set(jobs)
    for job in waiting:
        if not job.done():
            check_process(job._pid)
    try:
        yield from cast(Iterator[Job], futures.as_completed(waiting, timeout))
    except TimeoutError:
        left = sum(not job.done() for job in waiting)
        raise errors.WaitTimeout(
            f"{counted(left, 'job')} of {len(waiting)} not ended after {timeout:g} s"
        ) from None


class IterativeResult(Mapping[str, Any]):
    """The outputs of an iterative job, by name and as attributes, and how it went.

    ``result.x`` and ``result["x"]`` are the output x: an array, or the Path of its file.

    Attributes
    ----------
    iterations : int
    residual : float, after the last iteration; None: the workload has no such number
    converged : bool, False by the limit of iterations; None: nothing was to converge
    moves : int, how often rows moved between devices
    seconds : float, of all iterations
    report : JobReport
    """

    def __init__(
        self,
        outputs: Mapping[str, Any],
        report: JobReport,
        explain: Callable[[float | None], Explanation],
    ) -> None:
        self._outputs = dict(outputs)
        self._explain = explain
        self._history: IterationHistory | None = None
        self.report = report
        self.iterations = report.iterations or 0
        self.residual = report.residual
        self.converged = report.converged
        self.moves = report.moves or 0
        self.seconds = report.seconds

    @property
    def history(self) -> IterationHistory:
        """Return times, rows and residuals of all iterations; those of long runs in spans.

        In a callback, the first access asks the engine for it. Raises as `Job.explain`.
        """
        if self._history is None:
            self._history = self._explain(None).iterations
        if self._history is None:
            raise errors.InputMissing(
                f"job {self.report.job}: the records of its iterations are gone"
            )
        return self._history

    def keep_history(self) -> None:
        if self._history is None:
            with contextlib.suppress(errors.HetschedError):
                self._history = self._explain(HISTORY_SECONDS).iterations

    @property
    def residuals(self) -> tuple[float | None, ...]:
        """Return the residual after each iteration, or each span of a long run's `history`."""
        return tuple(span.residual for span in self.history.spans)

    def __getitem__(self, name: str) -> Any:
        return self._outputs[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._outputs)

    def __len__(self) -> int:
        return len(self._outputs)

    def __getattr__(self, name: str) -> Any:
        outputs = self.__dict__.get("_outputs", {})
        if name in outputs:
            return outputs[name]
        raise AttributeError(f"no output {name!r}; this result has {', '.join(outputs)}")

    def __repr__(self) -> str:
        parts = [counted(self.iterations, "iteration")]
        if self.residual is not None:
            parts.append(f"residual {self.residual:.3g}")
        if self.converged is not None:
            parts.append("converged" if self.converged else "not converged")
        return f"<IterativeResult of {', '.join(self._outputs)}: {', '.join(parts)}>"


def _notify(listener: Listener, state: JobState) -> None:
    """Call a listener; its exceptions are logged, so that the job can end."""
    try:
        listener(state)
    except Exception:
        log.exception("error in a listener of job %d", state.job)
