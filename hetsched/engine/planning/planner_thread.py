"""The planner's thread, for blocking work in order (file headers, models.db, planning)."""

from __future__ import annotations

import functools
import logging
import queue
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from hetsched.transport.loop import Loop

log = logging.getLogger(__name__)

DEFERRAL_SECONDS = 0.003
"""Delay of deferred work, so that it doesn't compete for a core with the client waiting for a
result."""

OnDone = Callable[[Any, BaseException | None], None]
"""``on_done(value, error)``: `error` is None on success."""
Task = tuple[Callable[[], Any], OnDone]


class PlannerThread:
    """One thread that runs functions in order and reports results on the loop's thread."""

    def __init__(self, loop: Loop, name: str = "planner") -> None:
        self._loop = loop
        self._tasks: queue.SimpleQueue[Task | None] = queue.SimpleQueue()
        self._deferred: deque[Callable[[], Any]] = deque()
        self._thread = threading.Thread(target=self._run_tasks, name=name, daemon=True)
        self._thread.start()

    def submit(self, function: Callable[[], Any], on_done: OnDone | None = None) -> None:
        """Run `function` on this thread, then ``on_done(value, error)`` on the loop's thread.

        Without `on_done` an error is only logged. Deferred functions run first.
        """
        self._submit_deferred()
        self._tasks.put((function, on_done or _log_error))

    def defer(self, function: Callable[[], Any], unless: Callable[[], bool]) -> None:
        """Run `function` after a short delay, but before any function submitted later.

        If ``unless()`` is true by then, it waits for the next submission or deferral.
        """
        self._deferred.append(function)
        self._loop.call_later(
            DEFERRAL_SECONDS, lambda: None if unless() else self._submit_deferred()
        )

    @property
    def deferred_count(self) -> int:
        """Return the number of deferred functions still waiting."""
        return len(self._deferred)

    def close(self) -> None:
        """Finish all submitted and deferred functions, then end the thread."""
        self._submit_deferred()
        self._tasks.put(None)
        self._thread.join()

    def _submit_deferred(self) -> None:
        while self._deferred:
            self._tasks.put((self._deferred.popleft(), _log_error))

    def _run_tasks(self) -> None:
        while (task := self._tasks.get()) is not None:
            run_inline(task[0], functools.partial(self._report, task[1]))
            del task  # keep no arrays or fds alive while idle

    def _report(self, on_done: OnDone, value: Any, error: BaseException | None) -> None:
        self._loop.call_soon_threadsafe(lambda: on_done(value, error))


def run_inline(function: Callable[[], Any], on_done: OnDone) -> None:
    """Run `function`, then ``on_done(value, error)``, both on this thread.

    For functions too short to be worth a thread switch.
    """
    value, failure = None, None
    try:
        value = function()
    except BaseException as error:  # on_done must always be called
        failure = error
    try:
        on_done(value, failure)
    finally:
        del failure  # its traceback refers to this frame, which must not keep arrays alive


def _log_error(value: Any, error: BaseException | None) -> None:
    if error is not None:
        log.error("unexpected error in the planner's thread", exc_info=error)
