"""The planner's thread: what may block (file headers, models.db, planning), in order."""

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

PAUSE = 0.003
"""Seconds that what has time waits: whoever waits for a result is woken meanwhile, and shouldn't
have to compete for a core."""

Then = Callable[[Any, BaseException | None], None]
Task = tuple[Callable[[], Any], Then]


def _log(value: Any, error: BaseException | None) -> None:
    if error is not None:
        log.error("unexpected error in the planner's thread", exc_info=error)


class Worker:
    """One thread that runs functions one after the other and answers on the loop's thread."""

    def __init__(self, loop: Loop, name: str = "planner") -> None:
        self._loop = loop
        self._tasks: queue.SimpleQueue[Task | None] = queue.SimpleQueue()
        self._later: deque[Callable[[], Any]] = deque()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def do(
        self,
        function: Callable[[], Any],
        then: Then | None = None,
    ) -> None:
        """Run `function` on the worker, then ``then(value, error)`` on the loop's thread.

        Without `then` an error is only logged.
        """
        self._catch_up()
        self._tasks.put((function, then or _log))

    def do_later(self, function: Callable[[], Any], unless: Callable[[], bool]) -> None:
        """Run `function` in a moment, but before anything that is asked for after it.

        If ``unless()`` then, it waits on: for that, or for the next that has time.
        """
        self._later.append(function)
        self._loop.later(PAUSE, lambda: None if unless() else self._catch_up())

    @property
    def behind(self) -> int:
        """How much waits that had time."""
        return len(self._later)

    def close(self) -> None:
        """Finish what was asked for, then end the thread."""
        self._catch_up()
        self._tasks.put(None)
        self._thread.join()

    def _catch_up(self) -> None:
        while self._later:
            self._tasks.put((self._later.popleft(), _log))

    def _work(self) -> None:
        while (task := self._tasks.get()) is not None:
            here(task[0], functools.partial(self._answer, task[1]))
            del task  # hold no arrays or fds while idle

    def _answer(self, then: Then, value: Any, failure: BaseException | None) -> None:
        self._loop.call(lambda: then(value, failure))


def here(function: Callable[[], Any], then: Then) -> None:
    """Run `function` on this thread, and ``then(value, error)``: as a Worker does, for what is too
    quick to be worth the way to another thread."""
    value, failure = None, None
    try:
        value = function()
    except BaseException as error:  # whatever it is, the asker must hear of it
        failure = error
    try:
        then(value, failure)
    finally:
        del failure  # it leads to this frame, which must not keep arrays alive
