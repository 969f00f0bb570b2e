"""The memory that a function takes for a unit, as seen while it computes the first one."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from pathlib import Path

from hetsched.machine_limits import ControlGroups

MIN_BYTES = 16 << 20
"""Of the arrays of a unit from which memory matters: smaller blocks have at most so much."""
INTERVAL = 1e-3
"""Seconds between two looks; who allocates so much takes longer."""
PAGE = os.sysconf("SC_PAGE_SIZE")


class Peak:
    """Within this, a thread looks at the memory of the process; `nbytes`: what it took more.

    `unit`: bytes of a unit's arrays; for small ones it doesn't look.
    """

    def __init__(self, unit: int) -> None:
        self.nbytes = 0
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._looks = unit >= MIN_BYTES

    def __enter__(self) -> Peak:
        if self._looks:
            self._before = _resident()
            self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._looks:
            self._note()
            self._is_over.set()
            self._thread.join()

    def _look(self) -> None:
        while not self._is_over.wait(INTERVAL):
            self._note()

    def _note(self) -> None:
        self.nbytes = max(self.nbytes, _resident() - self._before)


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE


def free_memory() -> float:
    """Return the bytes that this process may still take."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    free = next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable"))
    return min(free, ControlGroups().memory())


def cores_with_memory(cores: Sequence[str], peak: int, free: float) -> list[str]:
    """Return as many of the cores as can compute a unit at once, one at least."""
    return list(cores[: max(1, int(free // max(1, peak)))])
