"""A bounded pool of threads for files and the code of plug-ins, which may hang.

A task that misses its deadline is answered with an error that names what hangs; its thread is
given up and replaced. Too many of these, and new tasks are refused at once until some return.
Python can't end a thread that is blocked in the kernel.
"""

from __future__ import annotations

import functools
import itertools
import logging
import queue
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

from hetsched.engine.threads.ending import interrupt, join_all
from hetsched.engine.threads.step import Step
from hetsched.errors import HetschedError, TryAgain
from hetsched.transport.loop import Loop, Timer

log = logging.getLogger(__name__)

T = TypeVar("T")
OnDone = Callable[[Any, BaseException | None], None]
"""``on_done(value, error)``: `error` is None on success."""

MAX_THREADS = 4
"""Threads that run tasks at the same time. Arbitrary."""
MAX_HANGING = 16
"""Threads given up that haven't returned; with more, tasks are refused at once. Arbitrary."""


class Task:
    """A function to run, what it is doing, and whom to answer."""

    def __init__(
        self,
        function: Callable[[Step], Any],
        on_done: OnDone,
        discard: Callable[[Any], None],
        deadline: float,
    ) -> None:
        self.function = function
        self.on_done = on_done
        self.discard = discard
        self.deadline = deadline
        self.step = Step()
        self.timer: Timer | None = None
        self.is_answered = False


class Worker:
    """A thread that runs one task after the other."""

    def __init__(self, name: str, on_result: Callable[[Worker, Task, Any, Any], None]) -> None:
        self._inbox: queue.SimpleQueue[Task | None] = queue.SimpleQueue()
        self._on_result = on_result
        self.task: Task | None = None
        self.thread = threading.Thread(target=self._run_tasks, name=name, daemon=True)
        self.thread.start()

    def start(self, task: Task) -> None:
        self.task = task
        self._inbox.put(task)

    def end(self) -> None:
        """End after the present task."""
        self._inbox.put(None)

    @property
    def is_needed(self) -> bool:
        """Whether somebody waits for its task, or it has none and ends at once."""
        return self.task is None or not self.task.is_answered

    def _run_tasks(self) -> None:
        while (task := self._inbox.get()) is not None:
            self._run(task)
            del task  # keep no arrays or fds alive while idle

    def _run(self, task: Task) -> None:
        value, failure = None, None
        try:
            value = task.function(task.step)
        except BaseException as error:  # an answer must always come
            failure = error
        try:
            self._on_result(self, task, value, failure)
        finally:
            del failure  # its traceback refers to this frame, which must not keep arrays alive


class WorkerPool:
    """Runs tasks in threads, and answers on the loop's thread, where all methods are called.

    Parameters
    ----------
    deadline : float, seconds
        Of tasks that have no other.
    """

    def __init__(
        self,
        loop: Loop,
        deadline: float,
        max_threads: int = MAX_THREADS,
        max_hanging: int = MAX_HANGING,
    ) -> None:
        self._loop = loop
        self.deadline = deadline
        self._max_threads = max_threads
        self._max_hanging = max_hanging
        self._idle: list[Worker] = []
        self._busy: set[Worker] = set()
        self._hanging: list[tuple[Worker, str]] = []
        self._waiting: deque[Task] = deque()

    def hanging(self) -> list[str]:
        """Return what the threads hang in that were given up."""
        self._hanging = [entry for entry in self._hanging if entry[0].thread.is_alive()]
        return [text for _, text in self._hanging]

    def submit(
        self,
        function: Callable[[Step], T],
        on_done: OnDone | None = None,
        *,
        discard: Callable[[T], None] = lambda value: None,
        deadline: float | None = None,
    ) -> Task:
        """Run ``function(step)`` in a thread, then ``on_done(value, error)`` on the loop's.

        Returns a handle for `abandon`.

        Parameters
        ----------
        on_done : callable or None
            None: an error is only logged. The error of a missed deadline is TryAgain.
        discard : callable
            Releases a value that comes after the deadline. May block.
        deadline : float or None, seconds
            To start the task, and then to run it; None: the pool's.
        """
        seconds = self.deadline if deadline is None else deadline
        task = Task(function, on_done or _log_error, discard, seconds)
        texts = self.hanging()
        if len(texts) >= self._max_hanging:
            self._answer(task, None, _too_many_error(texts))
        elif self._idle:
            self._start(self._idle.pop(), task)
        elif len(self._busy) < self._max_threads:
            self._start(Worker("files", self._post_result), task)
        else:
            self._waiting.append(task)
            self._limit(task, functools.partial(self._on_unstarted, task))
        return task

    def abandon(self, task: Task, error: HetschedError) -> None:
        """Answer `task` with `error` now; its value is discarded when it comes.

        No effect if it has been answered.
        """
        if task in self._waiting:
            self._waiting.remove(task)
            _stop_timer(task)
        self._answer(task, None, error)

    def close(self, seconds: float) -> list[str]:
        """End the threads; return what those do that didn't end within `seconds`.

        Tasks that wait for a thread are run, too. Threads whose task was abandoned aren't waited
        for.
        """
        workers = [*self._busy, *self._idle]
        needed = [worker for worker in workers if worker.is_needed]
        if self._waiting and not needed:
            needed = [Worker("files", self._post_result)]
        for worker, task in zip(itertools.cycle(needed), self._waiting):
            worker.start(task)
        for worker in {*workers, *needed}:
            worker.end()
        join_all([worker.thread for worker in needed], seconds)
        steps = [w.task.step.text for w in workers if w.task is not None and w.thread.is_alive()]
        return steps + self.hanging()

    # ---- on the loop's thread

    def _start(self, worker: Worker, task: Task) -> None:
        self._busy.add(worker)
        self._limit(task, functools.partial(self._on_deadline, worker, task))
        worker.start(task)

    def _limit(self, task: Task, callback: Callable[[], None]) -> None:
        _stop_timer(task)
        task.timer = self._loop.call_later(task.deadline, callback)

    def _on_unstarted(self, task: Task) -> None:
        self._waiting.remove(task)
        busy = "; ".join(sorted({w.task.step.text for w in self._busy if w.task is not None}))
        self._answer(
            task,
            None,
            TryAgain(f"no thread was free for {task.deadline:g} s; in progress: {busy}"),
        )

    def _on_deadline(self, worker: Worker, task: Task) -> None:
        """Give up a worker whose task hangs."""
        self._busy.discard(worker)
        self._hanging.append((worker, task.step.text))
        worker.end()
        if task.step.is_interruptible:
            interrupt(worker.thread)
        log.warning("given up: %s hasn't returned for %g s", task.step.text, task.deadline)
        self._answer(task, None, _deadline_error(task))
        self._start_waiting()

    def _on_result(
        self, worker: Worker, task: Task, value: Any, error: BaseException | None
    ) -> None:
        _stop_timer(task)
        is_given_up = worker not in self._busy
        if not is_given_up:
            self._busy.discard(worker)
            worker.task = None
            self._keep(worker)
        if not task.is_answered:
            self._answer(task, value, error)
        elif error is None:
            self.submit(lambda step: task.discard(value))
        self._start_waiting()

    def _keep(self, worker: Worker) -> None:
        """Keep a worker for the next task, unless there is an idle one, and nothing waits."""
        if self._waiting or not self._idle:
            self._idle.append(worker)
        else:
            worker.end()

    def _start_waiting(self) -> None:
        while self._waiting and len(self.hanging()) >= self._max_hanging:
            self.abandon(self._waiting[0], _too_many_error(self.hanging()))
        while self._waiting and (self._idle or len(self._busy) < self._max_threads):
            worker = self._idle.pop() if self._idle else Worker("files", self._post_result)
            self._start(worker, self._waiting.popleft())

    def _answer(self, task: Task, value: Any, error: BaseException | None) -> None:
        if task.is_answered:
            return
        task.is_answered = True
        on_done, task.on_done = task.on_done, _log_error  # may refer to a client's arrays
        try:
            on_done(value, error)
        except Exception:
            log.exception("unexpected error in a callback of %s", task.step.text)

    # ---- on a worker's thread

    def _post_result(
        self, worker: Worker, task: Task, value: Any, error: BaseException | None
    ) -> None:
        self._loop.call_soon_threadsafe(
            functools.partial(self._on_result, worker, task, value, error)
        )


def _stop_timer(task: Task) -> None:
    if task.timer is not None:
        task.timer.cancel()


def _deadline_error(task: Task) -> TryAgain:
    return TryAgain(f"{task.step.text} hasn't returned for {task.deadline:g} s; try again later")


def _too_many_error(texts: list[str]) -> TryAgain:
    names = "; ".join(sorted(set(texts)))
    return TryAgain(f"{len(texts)} threads hang: {names:.300}; try again when these have returned")


def _log_error(value: Any, error: BaseException | None) -> None:
    if error is not None:
        log.error("unexpected error in a thread", exc_info=error)
