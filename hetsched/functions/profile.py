"""What became of the calls of this process: how many were divided, why others weren't."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

from hetsched.functions.call import HANDING
from hetsched.functions.session import session
from hetsched.text import Shown, columns
from hetsched.units import format_seconds

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
