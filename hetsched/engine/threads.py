"""Threads for users' files and the code of plug-ins, which may hang.

A task that misses its deadline is answered with an error that names what hangs; its thread is
given up and replaced. Too many of these, and new tasks are refused at once until some return.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import functools
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from hetsched import errors
from hetsched.transport.loop import Loop, Timer

log = logging.getLogger(__name__)

T = TypeVar("T")
OnDone = Callable[[Any, BaseException | None], None]
"""``on_done(value, error)``: `error` is None on success."""

POOL_THREADS = 4
"""Of each pool but the planner."""
MAX_HANGING = 16
"""Threads given up that haven't returned; with more, tasks are refused at once."""
MAX_HANGING_PLANNERS = 4


class TaskLate(errors.TryAgain):
    """A task has begun and missed its deadline: its thread may still do what it was to do."""


@dataclass(eq=False)
class Task:
    """A function to run, what it is doing, and whom to answer."""

    function: Callable[[], Any]
    on_done: OnDone
    discard: Callable[[Any], None]
    release: Callable[[], None]
    deadline: float
    # What its thread does, for the message if it hangs: completes "... hasn't returned"
    text: str
    # That is Python code that owns no descriptors, so an exception may end it anywhere
    is_interruptible: bool
    timer: Timer | None = None
    thread: threading.Thread | None = None  # None: it hasn't begun
    is_answered: bool = False

    def is_running(self) -> bool:
        return self.thread is not None and self.thread.is_alive()


_current = threading.local()  # `task`: the one that a thread runs


def enter(text: str, *, is_interruptible: bool = False) -> None:
    """Tell what the calling thread does from here on, such as "opening /data/x.npy"."""
    task: Task | None = getattr(_current, "task", None)
    if task is not None:
        task.text, task.is_interruptible = text, is_interruptible


class Pool:
    """Runs each task in a thread of its own, at most `size` at the same time.

    Answers on the loop's thread, where all methods are called. The planner's tasks (planning,
    learning, models.db) may be interrupted; they wait for their thread as long as that takes, and
    fail their job (JobFailed) if they are late.
    """

    def __init__(
        self,
        loop: Loop,
        size: int,  # 1: tasks run in order
        deadline: float,  # Seconds, of tasks that have no other
        *,
        name: str = "pool",  # Of its threads
        is_planner: bool = False,
    ) -> None:
        self._loop = loop
        self.deadline = deadline
        self._size = size
        self._name = name
        self._max_hanging = MAX_HANGING_PLANNERS if is_planner else MAX_HANGING
        self._is_planner = is_planner
        self._waiting: deque[Task] = deque()
        self._running: list[Task] = []
        self._given_up: list[Task] = []

    def hanging(self) -> list[str]:
        self._given_up = [task for task in self._given_up if task.is_running()]
        return [task.text for task in self._given_up]

    async def call(
        self,
        function: Callable[[], T],
        *,
        text: str = "a task",
        discard: Callable[[T], None] | None = None,
        release: Callable[[], None] = lambda: None,
        deadline: float | None = None,
    ) -> T:
        """Return what `function` returns in a thread, or raise its error.

        With `discard`, nobody waits for the function once the caller is cancelled.
        """
        future: asyncio.Future[T] = self._loop.create_future()

        def settle(value: Any, error: BaseException | None) -> None:
            if future.done():  # whoever waited was cancelled meanwhile
                return
            if error is None:
                future.set_result(value)
            elif isinstance(error, Exception) and not isinstance(error, StopIteration):
                future.set_exception(error)
            else:  # a future refuses these, and a task would end the loop with them
                future.set_exception(errors.from_record(errors.to_record(error)))

        drop = discard or (lambda value: None)
        task = self.submit(
            function, settle, text=text, discard=drop, release=release, deadline=deadline
        )
        try:
            return await future
        except asyncio.CancelledError:
            if discard is not None and future.cancelled():
                self.abandon(task, errors.TryAgain("it was cancelled"))
            elif discard is not None and future.exception() is None:  # it has come just now
                self.submit(functools.partial(discard, future.result()))
            raise

    def submit(
        self,
        function: Callable[[], T],
        on_done: OnDone | None = None,
        *,
        text: str = "a task",
        discard: Callable[[T], None] = lambda value: None,
        release: Callable[[], None] = lambda: None,
        deadline: float | None = None,
    ) -> Task:
        """Run `function` in a thread, then ``on_done(value, error)`` on the loop's.

        `discard` releases a value that comes after the deadline, and may block; `release` is
        called once, before `on_done` or long after, when no thread can use what the task uses;
        `deadline`: seconds to start the task, and then to run it; `text`: as of `enter`.
        """
        seconds = self.deadline if deadline is None else deadline
        on_done = on_done or _log_error
        task = Task(function, on_done, discard, release, seconds, text, self._is_planner)
        self._waiting.append(task)
        self._start_waiting()
        if task in self._waiting and not self._is_planner:
            self._limit(task, self._on_unstarted)
        return task

    def abandon(self, task: Task, error: errors.HetschedError) -> None:
        """Answer `task` with `error` unless it has been; its value is discarded when it comes."""
        if task in self._waiting:
            self._waiting.remove(task)
        self._answer(task, None, error)

    def close(self, seconds: float) -> list[str]:
        """Run all tasks to their end; return what those do that didn't end within `seconds`."""
        until = time.monotonic() + seconds
        waiting, self._waiting = self._waiting, deque()
        begun = [task for task in self._running if not task.is_answered]
        # A single thread's tasks run in order, and never beside one that hangs.
        tasks = [*begun, *waiting] if self._size == 1 else [*waiting, *begun]
        for task in tasks:
            with contextlib.suppress(RuntimeError):  # no more threads
                if task.thread is None and time.monotonic() < until:
                    self._start(task)
                if task.thread is not None:
                    task.thread.join(max(0.0, until - time.monotonic()))
        left = [task for task in [*self._running, *waiting] if task.is_running()]
        return [task.text for task in left] + self.hanging()

    def _start(self, task: Task) -> None:
        thread = threading.Thread(target=self._run, args=(task,), name=self._name, daemon=True)
        thread.start()
        task.thread = thread

    def _start_waiting(self) -> None:
        while self._waiting:
            task = self._waiting[0]
            if len(hanging := self.hanging()) >= self._max_hanging:
                names = f"{'; '.join(sorted(set(hanging))):.300}"
                text = f"{len(hanging)} threads hang: {names}; try again when these have returned"
                failed = errors.JobFailed(f"planning: {text}")
                self.abandon(task, failed if self._is_planner else errors.TryAgain(text))
                continue
            if len(self._running) >= self._size:
                return
            try:
                self._start(task)
            except RuntimeError:
                if self._running:
                    return  # after one of them
                self.abandon(task, errors.TryAgain("no thread can be started; try again"))
            else:
                self._waiting.popleft()
                self._running.append(task)
                self._limit(task, self._on_deadline)

    def _limit(self, task: Task, on_deadline: Callable[[Task], None]) -> None:
        _stop_timer(task)
        task.timer = self._loop.call_later(task.deadline, on_deadline, task)

    def _on_unstarted(self, task: Task) -> None:
        busy = "; ".join(sorted({each.text for each in self._running}))
        text = f"no thread was free for {task.deadline:g} s; in progress: {busy}"
        self.abandon(task, errors.TryAgain(text))

    def _on_deadline(self, task: Task) -> None:
        self._running.remove(task)
        self._given_up.append(task)
        if task.is_interruptible and task.thread is not None and task.is_running():
            # SystemExit ends an endless loop in Python, but no system call or library that hangs.
            ctypes.pythonapi.PyThreadState_SetAsyncExc(
                ctypes.c_ulong(task.thread.ident or 0), ctypes.py_object(SystemExit)
            )
        text = f"{task.text} hasn't returned for {task.deadline:g} s"
        log.warning("%s: given up: %s", self._name, text)
        error: errors.HetschedError = TaskLate(f"{text}; try again later")
        if self._is_planner:
            error = errors.JobFailed(
                f"planning hasn't finished within {task.deadline:g} s (deadlines.disk in the"
                " config): code of the workload, or the file of the models, hangs"
            )
        self._answer(task, None, error)
        self._start_waiting()

    def _on_result(self, task: Task, value: Any, error: BaseException | None) -> None:
        _stop_timer(task)
        _release(task)
        if task in self._running:  # else it was given up
            self._running.remove(task)
        if not task.is_answered:
            self._answer(task, value, error)
        elif error is None:
            self.submit(functools.partial(task.discard, value))
        self._start_waiting()

    def _answer(self, task: Task, value: Any, error: BaseException | None) -> None:
        if task.is_answered:
            return
        task.is_answered = True
        if task.thread is None:
            _stop_timer(task)
            _release(task)
        on_done, task.on_done = task.on_done, _log_error  # may refer to a client's arrays
        try:
            on_done(value, error)
        except Exception:
            log.exception("unexpected error in a callback of %s", task.text)

    def _run(self, task: Task) -> None:
        _current.task = task
        value, failure = None, None
        try:
            value = task.function()
        except BaseException as error:  # whoever waits must be answered
            failure = error
        try:
            self._loop.call_soon_threadsafe(self._on_result, task, value, failure)
        finally:
            del failure  # its traceback refers to this frame, which must not keep arrays alive


def _release(task: Task) -> None:
    release, task.release = task.release, lambda: None
    try:
        release()
    except Exception:
        log.exception("unexpected error after %s", task.text)


def _stop_timer(task: Task) -> None:
    if task.timer is not None:
        task.timer.cancel()


def _log_error(value: Any, error: BaseException | None) -> None:
    if error is not None:
        log.error("unexpected error in a thread", exc_info=error)
