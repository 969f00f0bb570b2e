"""Processor time of a process, in nanoseconds' resolution, from Linux's scheduler statistics."""

from __future__ import annotations

from pathlib import Path


def of_process(pid: int) -> float:
    """Return the seconds that all present threads of process `pid` have run."""
    total = 0
    for file in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        try:
            total += int(file.read_text().split()[0])
        except (OSError, IndexError):  # the thread has ended
            continue
    return total / 1e9


def of_tree(pid: int) -> float:
    """Return the seconds of process `pid` and its present descendants."""
    return of_process(pid) + sum(of_tree(child) for child in children(pid))


def children(pid: int) -> list[int]:
    found: list[int] = []
    for file in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found += map(int, file.read_text().split())
        except OSError:
            continue
    return found
