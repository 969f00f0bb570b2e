"""The embedded engine: the interface of `Client` with no daemon, no socket, no queue of others.

The engine lives on a thread of its own; every call that touches it is handed over to that thread.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from concurrent.futures import Future
from types import TracebackType
from typing import Any, TypeVar

import numpy as np

from hetsched import paths
from hetsched.client.job import FROM_CALLBACK, Job, Listener
from hetsched.client.job_request import Request
from hetsched.client.submission import Submitting
from hetsched.config import Config, load
from hetsched.daemon.lifecycle import arena_limit
from hetsched.device import DeviceInfo
from hetsched.engine.engine import Engine
from hetsched.errors import ErrorRecord, TryAgain, UsageError, from_record
from hetsched.explain import Explanation
from hetsched.job import ArenaRef, Done, JobSpec, JobState
from hetsched.transport.arena import Arena, Segment
from hetsched.transport.loop import Loop
from hetsched.transport.machine_limits import machine_memory
from hetsched.units import shown

T = TypeVar("T")

LAST_MOMENT = 1.0
"""Seconds in which an abandoned engine may tidy up: remove unfinished files. Arbitrary."""

CLOSED = "this hetsched.Local is closed; open another one"


class Local(Submitting):
    """Runs jobs in this process's own device processes.

    Parameters
    ----------
    config : str, Config or None
        A configuration, its shipped name or its path; None: the user's, else the default one.
    learn : bool
        Whether models are kept in models.db between runs.

    Raises
    ------
    UsageError, ConfigError, InputMissing, Unavailable
    """

    _segments: _Segments

    def __init__(self, config: str | Config | None = None, *, learn: bool = True) -> None:
        if config is not None and not isinstance(config, str | Config):
            raise UsageError(
                f"config: {shown(config)} should be a configuration's name or path, or a Config"
            )
        chosen = config if isinstance(config, Config) else load(config)[0]
        self._loop = Loop()
        self._arena = Arena(arena_limit(chosen.arena, machine_memory()))
        self._segments = _Segments(self._arena, self._ask, self._loop)
        try:
            self._engine = Engine(
                chosen,
                self._loop,
                self._arena,
                models_path=paths.models_path() if learn else None,
            )
        except BaseException:
            self._arena.close()
            self._loop.close()
            raise
        self._open = True
        self._lock = threading.RLock()
        self._pending: set[Future[Any]] = set()
        self._thread = threading.Thread(target=self._loop.run, name="hetsched", daemon=True)
        self._thread.start()
        # Device processes die with the thread that started them (PR_SET_PDEATHSIG).
        self._loop.call_soon_threadsafe(self._engine.start)

    def __enter__(self) -> Local:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def run(self, spec: JobSpec) -> Job:
        """As `submit`, for a job whose arrays are files, or generated.

        Raises
        ------
        UsageError, DataError, InputMissing, Unavailable, CantCreate, TryAgain
        """
        return self._started(Request(spec, self._segments), None)

    def devices(self) -> tuple[tuple[DeviceInfo, ...], dict[str, str]]:
        """The devices, and what isn't there and why."""
        return self._ask(self._engine.devices)

    def pids(self) -> dict[str, int]:
        """Device name -> id of the process that it lives in, of those that run."""
        return self._ask(self._engine.pids)

    def cancel(self, job: int) -> None:
        """Stop job number `job` at a chunk's edge."""
        self._hand_over(lambda: self._engine.cancel(job))

    def explain(self, job: int) -> Explanation:
        """What became of job number `job` and why, of a running one so far.

        Raises InputMissing, or TryAgain while it hasn't begun.
        """
        self._not_in_a_callback("explain")
        answer: Future[Explanation] = Future()

        def told(explanation: Explanation | None, error: BaseException | None) -> None:
            if explanation is None:
                answer.set_exception(error or TryAgain(CLOSED))
            else:
                answer.set_result(explanation)

        self._hand_over(lambda: self._engine.explain(job, told), answer)
        return answer.result()

    def close(self) -> None:
        """Cancel what runs, end the device processes. Arrays that were handed out stay valid."""
        self._not_in_a_callback("close")
        if self._leave():
            self._thread.join()
            self._tidy_up()

    def abandon(self) -> None:
        """Kill the device processes and close, without waiting for a chunk's edge."""
        if not self._leave():
            return
        self._engine.kill()  # from here: the engine's thread may be busy
        self._thread.join(LAST_MOMENT)
        if not self._thread.is_alive():
            self._tidy_up()

    def _leave(self) -> bool:
        """Take nothing new, and let the engine's thread end; False if that was asked before."""
        with self._lock:
            was_open, self._open = self._open, False
            if was_open:
                self._loop.call_soon_threadsafe(lambda: self._engine.drain(self._loop.stop))
        return was_open

    def _tidy_up(self) -> None:
        for answer in list(self._pending):
            answer.set_exception(TryAgain(CLOSED))
        self._engine.close()
        self._segments.close()
        self._arena.close()
        self._loop.close()

    def _started(self, request: Request, follow: Listener | None) -> Job:
        """Not from a job's callback: that is the thread that would have to answer."""
        self._not_in_a_callback("submit")
        accepted: Future[Job] = Future()
        self._hand_over(lambda: self._submit(request, accepted, follow), accepted)
        return accepted.result()

    def _submit(self, request: Request, accepted: Future[Job], follow: Listener | None) -> None:
        jobs: list[Job] = []

        def reply(answer: int | ErrorRecord) -> None:
            if isinstance(answer, ErrorRecord):
                accepted.set_exception(from_record(answer))
                return
            job = Job(answer, self.cancel, request.result, self.explain)
            jobs.append(job)
            if follow is not None:
                job.follow(follow)
            accepted.set_result(job)

        def listen(state: JobState) -> None:
            jobs[0].advance(state)
            if isinstance(state, Done):  # whoever wanted a view holds a reference of its own now
                for ref in state.results.values():
                    self._arena.release(ref.segment)

        self._engine.submit(request.spec, reply, listen)

    def _ask(self, function: Callable[[], T]) -> T:
        """The answer of `function`, run on the engine's thread."""
        if threading.current_thread() is self._thread:
            return function()
        answer: Future[T] = Future()

        def work() -> None:
            try:
                answer.set_result(function())
            except BaseException as error:  # the asker gets it, whatever it is
                answer.set_exception(error)

        self._hand_over(work, answer)
        return answer.result()

    def _hand_over(self, work: Callable[[], None], answer: Future[Any] | None = None) -> None:
        """Have `work` done on the engine's thread; `answer` fails if `close` is faster.

        Raises
        ------
        UsageError
            Closed before; who already waits when it closes gets TryAgain.
        """
        with self._lock:
            if not self._open:
                raise UsageError(CLOSED)
            if answer is not None:
                self._pending.add(answer)
                answer.add_done_callback(self._pending.discard)
            self._loop.call_soon_threadsafe(work)

    def _not_in_a_callback(self, what: str) -> None:
        """Raises UsageError on the engine's thread, which can't wait for itself."""
        if threading.current_thread() is self._thread:
            raise UsageError(f"{what} {FROM_CALLBACK}")


class _Segments:
    """The arena, from any thread."""

    def __init__(self, arena: Arena, ask: Callable[[Callable[[], Any]], Any], loop: Loop) -> None:
        self._arena = arena
        self._ask = ask
        self._loop = loop
        self._open = True

    def empty(self, shape: tuple[int, ...], dtype: str) -> np.ndarray:
        nbytes = math.prod(shape) * np.dtype(dtype).itemsize
        return self._array(lambda: self._arena.allocate(nbytes), shape, dtype, 0)

    def map(self, ref: ArenaRef) -> np.ndarray:
        def hold() -> Segment:
            self._arena.retain(ref.segment)
            return self._arena.segment(ref.segment)

        return self._array(hold, ref.shape, ref.dtype, ref.offset)

    def owns(self, segment: Segment) -> bool:
        return self._open and self._arena.owns(segment)

    def close(self) -> None:
        self._open = False

    def _array(
        self, hold: Callable[[], Segment], shape: tuple[int, ...], dtype: str, offset: int
    ) -> np.ndarray:
        """An array on the segment that `hold` gets, with a reference to it."""
        segment: Segment = self._ask(hold)
        try:
            return segment.array(shape, dtype, offset, lambda: self._drop(segment.id))
        except BaseException:
            self._drop(segment.id)
            raise

    def _drop(self, ident: int) -> None:
        if self._open:
            self._loop.call_soon_threadsafe(lambda: self._arena.release(ident))
