"""A submitted job: a `concurrent.futures.Future` that also tells how far it is.

Knows neither sockets nor the engine: whoever makes one passes callables and feeds it states.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from hetsched.device import Timeline
from hetsched.errors import (
    Cancelled,
    ErrorRecord,
    HetschedError,
    WaitTimeout,
    from_record,
    to_record,
)
from hetsched.explain import Explanation
from hetsched.job import Done, Failed, JobReport, JobState, Queued, Running, ended

log = logging.getLogger(__name__)

Listener = Callable[[JobState], None]

FROM_CALLBACK = "from a callback would wait for itself: hand it to another thread"
"""What is wrong with waiting on the thread that feeds the jobs."""


class Job(Future[Any]):
    """Future of the job's result: an array, or a dict by name where there are several outputs.

    What `add_done_callback` and `follow` call runs on the thread that hears of all jobs and must
    not wait: `submit` and other requests are refused there with UsageError; hand such work, and
    waiting for another job's `result`, to another thread.

    Parameters
    ----------
    ident : int
        The job's number.
    cancel : callable
        Asks for the end of job `ident`; may raise HetschedError when nobody is there to ask.
    fetch : callable
        What `result` should return, from the Done state. Called once, on the feeding thread.
    explain : callable
        Asks for the explanation of job `ident`.
    """

    def __init__(
        self,
        ident: int,
        cancel: Callable[[int], None],
        fetch: Callable[[Done], Any],
        explain: Callable[[int], Explanation],
    ) -> None:
        super().__init__()
        self.id = ident
        self._ask_cancel = cancel
        self._request_explanation = explain
        self._fetch: Callable[[Done], Any] | None = fetch
        self._news: JobState = Queued(ident, 0)
        self._listeners: list[Listener] = []
        self._feeding = threading.RLock()

    def __repr__(self) -> str:
        return f"<Job {self.id} {type(self._news).__name__.lower()}>"

    def progress(self) -> JobState:
        """The last state that was heard of."""
        return self._news

    @property
    def report(self) -> JobReport | None:
        """What the job did, once it has ended."""
        return self._news.report if isinstance(self._news, Done | Failed) else None

    def explain(self) -> Explanation:
        """What became of the job and why, of a running one so far; `str` of it is for people.

        Raises
        ------
        TryAgain
            It hasn't begun; whoever knows has gone.
        InputMissing
            It ended too long ago.
        UsageError
            In a job's callback, which would wait for itself.
        """
        return self._request_explanation(self.id)

    def timeline(self) -> dict[str, Timeline]:
        """Device -> start and end of each phase of each chunk that it has done, as measured.

        Seconds from the start of the job's first chunk. Raises as `explain`.
        """
        devices = self.explain().devices
        return {one.device: one.timeline for one in devices if one.timeline is not None}

    def follow(self, listener: Listener) -> None:
        """Call `listener(state)` with the present state, then each new one, on another thread."""
        with self._feeding:
            self._listeners.append(listener)
            _heard(listener, self._news)

    def running(self) -> bool:
        return isinstance(self._news, Running)

    def cancel(self) -> bool:
        """Ask for the job's end; False when it has ended already, or nobody can be asked.

        A running job ends at a chunk's edge; then `result` raises CancelledError.
        """
        if self.done():
            return self.cancelled()
        try:
            self._ask_cancel(self.id)
        except HetschedError:
            return self.cancelled()
        return True

    def result(self, timeout: float | None = None) -> Any:
        """The result, as soon as there is one. See `hetsched.errors` for how a job can fail.

        Raises
        ------
        concurrent.futures.CancelledError
        WaitTimeout
            After `timeout` seconds; the job goes on.
        HetschedError
        """
        try:
            return super().result(timeout)
        except TimeoutError:
            raise self._too_late(timeout) from None

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """The job's error, or None; raises as `result` does."""
        try:
            return super().exception(timeout)
        except TimeoutError:
            raise self._too_late(timeout) from None

    def advance(self, state: JobState) -> None:
        """For whoever feeds the job: its new state. After an ended one nothing more happens."""
        if self.done():
            return
        with self._feeding:
            self._news = state
            for listener in self._listeners:
                _heard(listener, state)
        if ended(state):
            self._conclude(state)

    def lost(self, error: HetschedError) -> None:
        """For whoever feeds the job: there will be no more states."""
        report = JobReport(job=self.id, state="lost", workload="", load=0, error=to_record(error))
        self.advance(Failed(self.id, report, ErrorRecord(error.code, str(error))))

    def _conclude(self, state: JobState) -> None:
        fetch, self._fetch = self._fetch, None
        if isinstance(state, Failed):
            if state.error.code == Cancelled.code:
                super().cancel()
                self.set_running_or_notify_cancel()
            else:
                self.set_exception(from_record(state.error))
            return
        assert isinstance(state, Done) and fetch is not None
        try:
            value = fetch(state)
        except Exception as error:
            self.set_exception(error)
        else:
            self.set_result(value)

    def _too_late(self, timeout: float | None) -> HetschedError:
        return WaitTimeout(f"job {self.id} hasn't ended after {timeout:g} s; it goes on")


def _heard(listener: Listener, state: JobState) -> None:
    """A listener's own error must not keep the job from ending."""
    try:
        listener(state)
    except Exception:
        log.exception("error in a listener of job %d", state.job)
