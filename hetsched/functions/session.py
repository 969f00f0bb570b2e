"""The engine of this process, from the first call that needs it to the end of the process; what
became of the calls; and `Executor`, for single calls on all cores.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import statistics
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import hetsched
from hetsched.config import load
from hetsched.devices.cpu.probe import probe
from hetsched.devices.probe import core_pool
from hetsched.errors import UsageError
from hetsched.functions.call import HANDING
from hetsched.text import Shown, columns
from hetsched.units import format_seconds, quoted

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
        self._calls: set[object] = set()
        self._is_disturbed = False

    def is_busy(self) -> bool:
        """Return whether the devices work for a call, which who asks will disturb."""
        is_busy = bool(self._calls)
        self._is_disturbed |= is_busy
        return is_busy

    @contextlib.contextmanager
    def busy(self) -> Iterator[None]:
        call = object()  # a number would be wrong for ever if Ctrl-C came beside `try`
        try:
            with self._lock:
                self._is_disturbed = bool(self._calls)
                self._calls.add(call)
            yield
        finally:
            self._calls.discard(call)

    def stay_on_this_core(self) -> None:
        """Never divide a call, as if the devices were always busy."""
        self._calls.add(self)

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
            self.__dict__.pop("cores", None)  # of the configuration that comes next
        if local is not None:
            atexit.unregister(self.close)
            local.close()


session = Session()


# The engine's threads don't survive a fork: a child starts its own.
os.register_at_fork(after_in_child=session.__init__)  # type: ignore[misc]


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


# ---- what became of the calls

SPLIT, SMALL = "split", "small"
MAX_ROWS = 1000
"""Functions that are counted; those that come later are counted together."""


@dataclass
class Counted:
    """Calls of one function that went one way. `saved`: seconds, against one core."""

    calls: int = 0
    seconds: float = 0.0
    saved: float = 0.0


@dataclass
class Calls:
    _rows: dict[tuple[str, str], Counted] = field(default_factory=dict)
    _remarks: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Function -> why its last divided call was without some devices."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        lock = self._lock
        os.register_at_fork(
            before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release
        )

    def note(self, name: str, what: str, seconds: float, saved: float = 0.0) -> None:
        with self._lock:
            key = (name, what) if len(self._rows) < MAX_ROWS else ("others", what)
            row = self._rows.setdefault(key, Counted())
            row.calls += 1
            row.seconds += seconds
            row.saved += saved

    def remark(self, name: str, remarks: Sequence[str]) -> None:
        with self._lock:
            if name in self._remarks or len(self._remarks) < MAX_ROWS:
                self._remarks[name] = tuple(remarks)

    def remarks(self) -> list[str]:
        with self._lock:
            return [f"{name}: {text}" for name, texts in self._remarks.items() for text in texts]

    def rows(self) -> list[tuple[str, str, Counted]]:
        """Return (function, what became of the calls, how many), the longest first."""
        with self._lock:
            rows = [(*key, row) for key, row in self._rows.items()]
        return sorted(rows, key=lambda row: -row[2].seconds)


calls = Calls()


def profile() -> Shown:
    """Return a table of what became of this process's calls, for people.

    `saved` is what calls took less than on one core. From which length on calls are planned jobs
    follows from what a job costs on top of its computing, as learnt.
    """
    rows = [
        (
            name,
            what,
            str(row.calls),
            f"{row.seconds:.3f}",
            f"{row.saved:.3f}" if what == SPLIT else "",
        )
        for name, what, row in calls.rows()
    ]
    lines = columns(("function", "", "calls", "seconds", "saved"), rows, left_columns=2)
    lines += calls.remarks()
    even, short = map(format_seconds, (HANDING, session.short))
    lines.append(
        f"break-even: calls of less than {even} stay on one core; threads alone, without a plan,"
    )
    lines.append(f"share those of which all cores together compute less than {short}")
    return Shown("\n".join(lines))
