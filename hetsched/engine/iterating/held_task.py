"""A task of the pool on a job's segments, which stay even if its thread hangs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from hetsched.errors import Cancelled

T = TypeVar("T")


class HeldTask:
    """Releases the segments of a task once it can't use them any more.

    The pool may answer a task that it never starts, and one whose thread goes on.

    Parameters
    ----------
    release : callable
        Called once, on the loop's thread.
    call_soon : callable
        Calls a function on the loop's thread. From any thread.
    """

    def __init__(
        self, release: Callable[[], None], call_soon: Callable[[Callable[[], None]], None]
    ) -> None:
        self._release = release
        self._call_soon = call_soon
        self._lock = threading.Lock()
        self._has_begun = self._is_given_up = False

    def run(self, function: Callable[[], T]) -> T:
        """Run `function` in the task's thread. Raises Cancelled if the task has been answered."""
        with self._lock:
            if self._is_given_up:
                raise Cancelled("given up before it began")
            self._has_begun = True
        try:
            return function()
        finally:
            self._call_soon(self._release)

    def answered(self) -> None:
        """Note that the pool has answered the task. On the loop's thread."""
        with self._lock:
            is_unused = not (self._has_begun or self._is_given_up)
            self._is_given_up = True
        if is_unused:
            self._release()

    @property
    def is_given_up(self) -> bool:
        """Whether the pool has answered the task."""
        return self._is_given_up
