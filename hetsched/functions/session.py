"""The engine of this process: it starts when a call first needs it, and ends with the process;
and `Executor`, for single calls on all cores.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import statistics
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import hetsched
from hetsched.config import load
from hetsched.devices.cpu.probe import probe
from hetsched.devices.probe import core_pool
from hetsched.errors import UsageError
from hetsched.units import quoted

if TYPE_CHECKING:
    from hetsched.local import Local

P = ParamSpec("P")
T = TypeVar("T")

ACCEPTED = 0.03
"""Part of a call's time that the engine may cost."""
FIRST_OVERHEAD = 2e-3
"""Seconds that a call through the engine takes longer than its computing, until it is known."""
REMEMBERED = 5
"""Calls whose median is the overhead: one that was disturbed, or the first, must not count."""


class Session:
    """The engine, and how much a call through it costs. Any thread may use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._local: Local | None = None
        self._overheads = deque([FIRST_OVERHEAD] * REMEMBERED, maxlen=REMEMBERED)
        self._calls = 0
        self._is_disturbed = False

    def is_busy(self) -> bool:
        """Return whether the devices work for a call, which who asks will disturb."""
        is_busy = self._calls > 0
        self._is_disturbed |= is_busy
        return is_busy

    @contextlib.contextmanager
    def busy(self) -> Iterator[None]:
        """Within this, devices work for a call."""
        with self._lock:
            self._is_disturbed = self._calls > 0
            self._calls += 1
        try:
            yield
        finally:
            with self._lock:
                self._calls -= 1

    def stay_on_this_core(self) -> None:
        """Never divide a call, as if the devices were always busy."""
        self._calls = 1

    def local(self) -> Local:
        with self._lock:
            if self._local is None:
                self._local = hetsched.Local()
                atexit.register(self.close)
            return self._local

    @functools.cached_property
    def cores(self) -> int:
        """How many cores the configuration leaves for jobs. Raises as `Local`."""
        tables = [each for each in enumerate(load()[0].device) if each[1].kind == "cpu"]
        found = probe(tables, core_pool()).processes
        return len([each for each in found if each.device.is_plain_core])

    @property
    def overhead(self) -> float:
        """Seconds that a call through the engine takes longer than its computing."""
        return statistics.median(self._overheads)

    @property
    def short(self) -> float:
        """Seconds of computing by all cores for less of which the engine costs too much."""
        return self.overhead / ACCEPTED

    def note_overhead(self, seconds: float) -> None:
        """Learn from a call on the devices, within `busy`, if no other call disturbed it."""
        if not self._is_disturbed:
            self._overheads.append(max(0.0, seconds))

    def close(self) -> None:
        with self._lock:
            local, self._local = self._local, None
        if local is not None:
            atexit.unregister(self.close)
            local.close()


session = Session()


def _forget() -> None:
    """The engine's threads don't survive a fork: a child starts its own."""
    session.__init__()  # type: ignore[misc]


os.register_at_fork(after_in_child=_forget)


class Executor(ThreadPoolExecutor):
    """A `concurrent.futures.Executor` with a thread for each core that hetsched may use.

    For calls that differ, such as the tasks of Dask and joblib; `hetsched.map` is faster for a
    function of the units of an array. While such a call runs, calls of `hetsched.map` and
    `hetsched.fft`, in it as well as in other threads, compute in their own threads: the cores are
    in use.

    Parameters
    ----------
    cores : int, optional
        Calls at once; by default the cores of this process, less if a quota allows less.

    Raises
    ------
    UsageError
    """

    def __init__(self, cores: int | None = None) -> None:
        if cores is not None and (type(cores) is not int or cores < 1):
            raise UsageError(f"cores: {quoted(cores)} should be a whole number from 1 on")
        super().__init__(cores or core_pool().usable, thread_name_prefix="hetsched-call")

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        return super().submit(_call, fn, *args, **kwargs)


def _call(fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    with session.busy():
        return fn(*args, **kwargs)
