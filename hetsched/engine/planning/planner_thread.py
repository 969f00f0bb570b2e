"""The planner's thread: planning, learning and models.db, in order. It calls code of plug-ins.

A function that misses its deadline fails with a clear error; its thread is interrupted, given up
and replaced, so that only its own job suffers.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import queue
import threading
import time
from collections.abc import Callable
from typing import Any

from hetsched.engine.threads.ending import interrupt, join_all
from hetsched.errors import JobFailed
from hetsched.transport.loop import Loop

log = logging.getLogger(__name__)

PLANNER_SECONDS = 60.0
"""Deadline of each function, unless configured."""
MAX_HANGING = 4
"""Threads given up that haven't returned; with more, functions fail at once. Arbitrary."""

OnDone = Callable[[Any, BaseException | None], None]
"""``on_done(value, error)``: `error` is None on success."""


class PlannerTask:
    """A function and whom to answer. `is_answered` belongs to the loop's thread."""

    __slots__ = ("function", "is_answered", "on_done")

    def __init__(self, function: Callable[[], Any], on_done: OnDone) -> None:
        self.function = function
        self.on_done = on_done
        self.is_answered = False


class PlannerThread:
    """One thread that runs functions in order and reports results on the loop's thread.

    Parameters
    ----------
    deadline : float, seconds
        For each function.
    """

    def __init__(
        self, loop: Loop, name: str = "planner", deadline: float = PLANNER_SECONDS
    ) -> None:
        self._loop = loop
        self._name = name
        self._deadline = deadline
        self._tasks: queue.SimpleQueue[PlannerTask | None] = queue.SimpleQueue()
        self._outstanding = 0
        self._is_watching = False
        self._hanging: list[threading.Thread] = []
        self._runner = _Runner(self._tasks, self._report, name)

    def submit(self, function: Callable[[], Any], on_done: OnDone | None = None) -> None:
        """Run `function` on this thread, then ``on_done(value, error)`` on the loop's thread.

        Without `on_done` an error is only logged. The error is JobFailed if the function misses
        the deadline.
        """
        self._put(PlannerTask(function, on_done or _log_error))

    def close(self, seconds: float = PLANNER_SECONDS) -> bool:
        """Finish all submitted functions, then end the thread.

        Returns
        -------
        bool
            Whether it ended within `seconds`, and no other hangs: the state is free to be closed.
        """
        self._tasks.put(None)
        return join_all([self._runner.thread], seconds) and join_all(self._hanging, 0.0)

    def _put(self, task: PlannerTask) -> None:
        if self._runner.is_given_up:
            self._runner = self._replacement()
        self._outstanding += 1
        self._tasks.put(task)
        if self._runner.is_given_up:
            self._refuse_queued()
        if not self._is_watching:
            self._watch()

    # ---- deadlines

    def _watch(self) -> None:
        """Check the present function until all are done: cheaper than a timer for each."""
        self._is_watching = self._outstanding > 0
        if not self._is_watching:
            return
        self._loop.call_later(self._deadline / 4, self._watch)
        task = self._runner.give_up(time.monotonic() - self._deadline)
        if task is None:
            return
        log.error("planner: a function hasn't returned for %g s; given up", self._deadline)
        interrupt(self._runner.thread)
        self._hanging.append(self._runner.thread)
        self._runner = self._replacement()
        self._answer(task, None, self._deadline_error())
        if self._runner.is_given_up:
            self._refuse_queued()

    def _replacement(self) -> _Runner:
        """Return a new thread for the same functions, unless too many hang."""
        self._hanging = [thread for thread in self._hanging if thread.is_alive()]
        if len(self._hanging) > MAX_HANGING:
            return self._runner
        return _Runner(self._tasks, self._report, self._name)

    def _refuse_queued(self) -> None:
        with contextlib.suppress(queue.Empty):
            while (task := self._tasks.get_nowait()) is not None:
                self._answer(task, None, self._deadline_error())

    def _deadline_error(self) -> JobFailed:
        return JobFailed(
            f"planning hasn't finished within {self._deadline:g} s (deadlines.disk in the"
            " config): code of the workload, or the file of the models, hangs"
        )

    def _report(self, task: PlannerTask, value: Any, error: BaseException | None) -> None:
        self._loop.call_soon_threadsafe(functools.partial(self._answer, task, value, error))

    def _answer(self, task: PlannerTask, value: Any, error: BaseException | None) -> None:
        if task.is_answered:
            return
        task.is_answered = True
        self._outstanding -= 1
        on_done, task.on_done = task.on_done, _log_error
        on_done(value, error)


class _Runner:
    """A thread that runs the functions of a queue, until it is given up."""

    def __init__(
        self,
        tasks: queue.SimpleQueue[PlannerTask | None],
        report: Callable[[PlannerTask, Any, BaseException | None], None],
        name: str,
    ) -> None:
        self._tasks = tasks
        self._report = report
        self._lock = threading.Lock()
        self._current: PlannerTask | None = None
        self._since = 0.0
        self.is_given_up = False
        self.thread = threading.Thread(target=self._run_tasks, name=name, daemon=True)
        self.thread.start()

    def give_up(self, before: float) -> PlannerTask | None:
        """Give up the thread if its present function began before then; return the function."""
        with self._lock:
            if self._current is None or self._since >= before or self.is_given_up:
                return None
            self.is_given_up = True
            return self._current

    def _run_tasks(self) -> None:
        while not self.is_given_up and (task := self._tasks.get()) is not None:
            with self._lock:
                self._current, self._since = task, time.monotonic()
            run_inline(task.function, functools.partial(self._finish, task))
            del task  # keep no arrays or fds alive while idle

    def _finish(self, task: PlannerTask, value: Any, error: BaseException | None) -> None:
        with self._lock:
            self._current = None
        if not self.is_given_up:
            self._report(task, value, error)


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
