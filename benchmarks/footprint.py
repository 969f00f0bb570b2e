"""The memory of a process and all its descendants, by proportional set size, while a job runs."""

from __future__ import annotations

import threading
from pathlib import Path
from types import TracebackType

import psutil

INTERVAL = 0.05


class Footprint:
    """A context manager that samples in a thread; `peak` is in bytes.

    Shared memory (the arena) isn't counted. Mapped files are: jobs never map their files, so these
    are libraries.
    """

    def __init__(self, pids: list[int]) -> None:
        self._pids = pids
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self.peak = 0
        self.samples = 0

    def __enter__(self) -> Footprint:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(INTERVAL):
            self.peak = max(self.peak, sum(private(pid) for pid in family(self._pids)))
            self.samples += 1


def family(pids: list[int]) -> set[int]:
    found = set(pids)
    for pid in pids:
        try:
            found |= {child.pid for child in psutil.Process(pid).children(recursive=True)}
        except psutil.NoSuchProcess:
            continue
    return found


def private(pid: int) -> int:
    """Return Pss less Pss_Shmem in bytes; 0 for a process that has just ended."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    fields = {line.split()[0]: int(line.split()[1]) * 1024 for line in lines[1:]}
    return fields["Pss:"] - fields["Pss_Shmem:"]
