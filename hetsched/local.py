"""The embedded engine: the interface of `Client` without a daemon. It runs on its own thread."""

from __future__ import annotations

import functools
import logging
import math
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

import numpy as np
from msgspec.structs import asdict

from hetsched import errors, paths
from hetsched.client.client import JobSubmitter, Submission
from hetsched.client.job import FROM_CALLBACK, Job, Listener, check_process
from hetsched.config import Config, load
from hetsched.device import DeviceInfo
from hetsched.engine.engine import Engine
from hetsched.explain import Explanation
from hetsched.job import ArenaRef, JobSpec, checked
from hetsched.jobs.followers import Follower
from hetsched.jobs.table import JobRecord, JobTable
from hetsched.machine_limits import machine_memory, resolve_size
from hetsched.transport.arena import Arena, Segment
from hetsched.transport.loop import Loop
from hetsched.transport.messages import Hold, Prioritize
from hetsched.units import quoted

T = TypeVar("T")

ABANDON_SECONDS = 1.0
"""Time for an abandoned engine to clean up, for example unfinished files."""

CLOSED = "this hetsched.Local is closed; create another one"


class Local(JobSubmitter):
    """An engine embedded in this process.

    Its devices start with the first job. Cores run in threads where a job has arrays that aren't
    in shared memory, if its workload allows that; else each has a process of its own. In threads
    jobs work on the caller's arrays themselves: don't change these before the end of the job.

    Parameters
    ----------
    config : str, Config or None
        A configuration, the name of a shipped one, or a path; None: the user's, or the default.
    learn : bool
        Keep models in models.db between runs.

    Raises
    ------
    UsageError, ConfigError, InputMissing, Unavailable
    """

    _segments: _LocalSegments

    def __init__(self, config: str | Config | None = None, *, learn: bool = True) -> None:
        if config is not None and not isinstance(config, str | Config):
            raise errors.UsageError(
                f"config: {quoted(config)} should be a configuration's name or path, or a Config"
            )
        chosen = config if isinstance(config, Config) else load(config)[0]
        self._loop = Loop(slow_level=logging.INFO)
        limit = resolve_size(chosen.arena.limit, machine_memory(), "arena.limit")
        self._arena = Arena(limit)
        self._segments = _LocalSegments(self._arena, self._call, self._loop)
        try:
            self._table = JobTable(chosen, self._loop, self._arena)
            self._engine = Engine(
                chosen,
                self._loop,
                self._arena,
                self._table,
                models_path=paths.models_path() if learn else None,
            )
        except BaseException:
            self._arena.close()
            self._loop.close()
            raise
        self._open = True
        self._pid = os.getpid()
        self._lock = threading.RLock()
        self._pending: set[Future[Any]] = set()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="hetsched", daemon=True
        )
        self._thread.start()

    def __enter__(self) -> Local:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def run(self, spec: JobSpec) -> Job:
        """Submit a job whose arrays are files or generated."""
        valid = checked(JobSpec, **asdict(spec))
        return self._request(Submission(valid, self._segments), None)

    def devices(self) -> tuple[tuple[DeviceInfo, ...], dict[str, str]]:
        """Return the devices, and the reasons why others are absent."""
        listed = self._call(self._engine.devices)
        return listed.devices, listed.absent

    def pids(self) -> dict[str, int]:
        """Return device name -> id of its process, for running processes."""
        return self._call(self._engine.fleet.pids)

    def cancel(self, job: int) -> None:
        """Stop job number `job` after its current chunks."""
        jobs = self._table.jobs
        self._post(lambda: self._engine.scheduler.cancel(jobs[job]) if job in jobs else None)

    def hold(self, job: int) -> bool:
        """Keep waiting job number `job` from starting; return whether that changed anything.

        As `release` and `prioritize` only while it waits (UsageError).
        """
        return self._change(Hold(job))

    def release(self, job: int) -> bool:
        """Let held job number `job` start when its turn comes."""
        return self._change(Hold(job, False))

    def prioritize(self, job: int, priority: int) -> bool:
        """Give waiting job number `job` another priority, -20 to 19; larger ones run first."""
        return self._change(checked(Prioritize, job=job, priority=priority))

    def _change(self, change: Hold | Prioritize) -> bool:
        def run() -> bool:
            record = self._table.job(change.job)
            is_changed = self._engine.change_queue(record, change)
            if is_changed:
                self._table.followers.report(record)
            return is_changed

        return self._call(run)

    def switch_devices(self, enable: Sequence[str] = (), disable: Sequence[str] = ()) -> None:
        """Let jobs use devices, or not; also a running job, if it is iterative."""
        self._call(lambda: self._engine.switch_devices(enable, disable))

    def explain(self, job: int) -> Explanation:
        """Explain job number `job`; a running one up to now.

        Raises
        ------
        InputMissing
            There is no such job, or it ended too long ago.
        TryAgain
            It hasn't started.
        """
        self._refuse_in_callback("explain")

        def work(answer: Future[Explanation]) -> None:
            def on_explained(found: Explanation | None, error: BaseException | None) -> None:
                if found is not None:
                    answer.set_result(found)
                else:
                    answer.set_exception(error or errors.TryAgain(CLOSED))

            self._engine.explain(self._table.job(job), on_explained)

        return self._ask(work)

    def close(self) -> None:
        """Cancel all jobs and end the device processes. The caller's arrays stay valid."""
        self._refuse_in_callback("close")
        if self._begin_closing():
            self._thread.join()
            self._clean_up()

    def abandon(self) -> None:
        """Kill the device processes and close, without waiting for the current chunks."""
        if self._begin_closing():
            self._engine.fleet.kill()  # on this thread, because the engine's may be busy
            self._thread.join(ABANDON_SECONDS)
            if not self._thread.is_alive():
                self._clean_up()

    def _begin_closing(self) -> bool:
        """Refuse new calls and end the engine's thread; return False if already closing."""
        if os.getpid() != self._pid:
            return False  # the engine is the parent's
        with self._lock:
            was_open, self._open = self._open, False
            if was_open:
                self._loop.call_soon_threadsafe(lambda: self._engine.drain(self._loop.stop))
        return was_open

    def _clean_up(self) -> None:
        for answer in list(self._pending):
            answer.set_exception(errors.TryAgain(CLOSED))
        self._engine.close()
        self._segments.is_open = False
        self._arena.close()
        self._loop.close()

    def _request(self, submission: Submission, follow: Listener | None) -> Job:
        self._refuse_in_callback("submit")
        if submission.spec.id:
            raise errors.UsageError(
                "id: hetsched.Local doesn't remember jobs; omit it, or submit to a daemon"
            )
        job = Job(
            cancel=self.cancel,
            fetch=submission.result,
            explain=lambda number, seconds: self.explain(number),
            release=self.release,
            view=self._segments.map,
            follow=follow,
        )
        return self._ask(lambda accepted: self._enter(submission.spec, job, accepted))

    def _enter(self, spec: JobSpec, job: Job, accepted: Future[Job]) -> None:
        record = JobRecord(self._table.numbers.take(), spec, submitted_at=time.time())

        def on_answer(record: JobRecord, error: errors.ErrorRecord | None) -> None:
            if error is not None:
                accepted.set_exception(errors.from_record(error))
                return
            job.accepted(record.number, "")
            follower = Follower(0, lambda answer, droppable: job.advance(answer.state))
            self._table.followers.follow(record, follower)
            accepted.set_result(job)

        record.submitters.append(on_answer)
        self._table.add(record)
        self._engine.admit(record)

    def _call(self, function: Callable[[], T]) -> T:
        """Run `function` on the engine's thread and return its result."""
        if threading.current_thread() is self._thread:
            return function()

        def work(answer: Future[T]) -> None:
            answer.set_result(function())

        return self._ask(work)

    def _ask(self, work: Callable[[Future[T]], None]) -> T:
        """Run `work` on the engine's thread, and wait for the answer that it gives then or later.

        Raises TryAgain if `close` comes first.
        """
        answer: Future[T] = Future()
        answer.add_done_callback(self._pending.discard)
        self._post(functools.partial(_run, work, answer), answer)
        try:
            return answer.result()
        finally:
            del answer  # its error refers to this frame, which must not keep arrays alive

    def _post(self, work: Callable[[], None], answer: Future[Any] | None = None) -> None:
        """Run `work` on the engine's thread. Raises UsageError if that has ended, or in a fork."""
        check_process(self._pid)
        with self._lock:
            if not self._open:
                raise errors.UsageError(CLOSED)
            if answer is not None:
                self._pending.add(answer)
            self._loop.call_soon_threadsafe(self._segments.begin_loans, work)

    def _refuse_in_callback(self, method: str) -> None:
        """Raise UsageError on the engine's thread, which can't wait for itself."""
        if threading.current_thread() is self._thread:
            raise errors.UsageError(f"{method} {FROM_CALLBACK}")


def _run(work: Callable[[Future[T]], None], answer: Future[T]) -> None:
    try:
        work(answer)
    except BaseException as error:
        if answer.done():
            raise
        answer.set_exception(error)


class _Loan:
    """Ends the loan of an array when it is freed, except that jobs keep it until they end."""


class _LocalSegments:
    """The arena, usable from any thread."""

    def __init__(self, arena: Arena, call: Callable[[Callable[[], Any]], Any], loop: Loop) -> None:
        self._arena, self._call, self._loop = arena, call, loop
        self._loans: deque[tuple[int, np.ndarray]] = deque()
        """Arrays lent of which the arena doesn't know yet, with their segments' numbers."""
        self._freed: deque[int] = deque()
        self._is_release_due = False
        self._pid = os.getpid()
        self.is_open = True

    def empty(self, shape: tuple[int, ...], dtype: str) -> np.ndarray:
        nbytes = math.prod(shape) * np.dtype(dtype).itemsize
        return self._array(self._call(lambda: self._arena.allocate(nbytes)), shape, dtype)

    def map(self, ref: ArenaRef) -> np.ndarray:
        def hold() -> Segment:
            self._arena.retain(ref.segment)
            return self._arena.segment(ref.segment)

        return self._array(self._call(hold), ref.shape, ref.dtype, ref.offset)

    def claim(self, segment: Segment) -> bool:
        return self.is_open and self._arena.owns(segment)

    def lend(self, array: np.ndarray) -> tuple[ArenaRef, object]:
        number, loan = next(self._arena.numbers), _Loan()
        self._loans.append((number, array))
        weakref.finalize(loan, self._drop, number).atexit = False
        return ArenaRef(number, array.shape, array.dtype.name, lent=True), loan

    def begin_loans(self, work: Callable[[], None]) -> None:
        """Add the arrays lent so far to the arena, then do `work`, which may be about them."""
        while self._loans:
            self._arena.lend(*self._loans.popleft())
        work()

    def _array(
        self, segment: Segment, shape: tuple[int, ...], dtype: str, offset: int = 0
    ) -> np.ndarray:
        """Return an array on a segment, whose reference it takes over."""
        try:
            return segment.array(shape, dtype, offset, lambda: self._drop(segment.id))
        except BaseException:
            self._drop(segment.id)
            raise

    def _drop(self, ident: int) -> None:
        if self.is_open and os.getpid() == self._pid:
            self._freed.append(ident)
            if not self._is_release_due:  # else a call is on its way
                self._is_release_due = True
                self._loop.call_soon_threadsafe(self.begin_loans, self._release)

    def _release(self) -> None:
        self._is_release_due = False  # first: what is freed from now on needs another call
        while self._freed:
            self._arena.release(self._freed.popleft())
