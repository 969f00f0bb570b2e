"""The thread that calls NVML, which stays open between queries.

Opening takes tens of milliseconds, and any call may hang in the driver. Callers wait only until a
deadline; while a call hangs, others fail at once.
"""

from __future__ import annotations

import contextlib
import importlib
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class _Query:
    """`deadline`: when nobody waits for `answer` any more, monotonic seconds."""

    function: Callable[[Any], Any]
    deadline: float
    reopen: bool
    answer: Future[Any]


class NvmlThread:
    """Runs queries one after the other; started with the first.

    Parameters
    ----------
    library : module or None
        Replaces pynvml in tests.
    """

    def __init__(self, library: Any = None) -> None:
        self._library = library
        self._is_open = False
        self._queries: queue.SimpleQueue[_Query] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._overdue: Future[Any] | None = None
        """The query that missed its deadline last."""

    def ask(self, function: Callable[[Any], T], seconds: float, *, reopen: bool = False) -> T:
        """Return ``function(nvml)``, called on this thread. Thread-safe.

        Parameters
        ----------
        reopen : bool
            Start with a new session: one doesn't see GPUs that came later.

        Raises
        ------
        TimeoutError
            It takes longer than `seconds`, or an earlier call still hangs.
        ImportError
            There is no library. An error of the library is raised as it is.
        """
        self._start()
        if self._overdue is not None and not self._overdue.done():
            raise TimeoutError("an earlier call of NVML hasn't returned")
        query = _Query(function, time.monotonic() + seconds, reopen, Future())
        self._queries.put(query)
        try:
            answer: T = query.answer.result(seconds)
        except TimeoutError:
            if not query.answer.done():
                self._overdue = query.answer
            raise
        return answer

    def _start(self) -> None:
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="nvml", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        while True:
            query = self._queries.get()
            if time.monotonic() >= query.deadline:
                query.answer.set_exception(TimeoutError())
                continue
            try:
                query.answer.set_result(self._answer(query))
            except BaseException as error:
                self._close()  # a driver that was reloaded needs a new session
                query.answer.set_exception(error)

    def _answer(self, query: _Query) -> Any:
        if query.reopen:
            self._close()
        if self._library is None:
            self._library = importlib.import_module("pynvml")
        if not self._is_open:
            self._library.nvmlInit()
            self._is_open = True
        return query.function(self._library)

    def _close(self) -> None:
        if self._is_open:
            self._is_open = False
            with contextlib.suppress(Exception):
                self._library.nvmlShutdown()
