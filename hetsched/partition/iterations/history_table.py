"""NEC's history table: rows, compute and transfer times of devices, kept across runs."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

MAX_ENTRIES = 32
"""Entries kept of each device, the latest; a model uses no more."""


@dataclass(frozen=True)
class HistoryEntry:
    """One iteration on one device; US 9,038,088 calls the columns PROC_NODE, ITER, DATA_SIZE,
    CMPT_TIME and XFER_TIME."""

    device: str
    iteration: int
    rows: int
    compute: float
    transfer: float


class HistoryTable:
    """The latest entries of each device, oldest first."""

    def __init__(self, entries: Iterable[HistoryEntry] = ()) -> None:
        self._entries: dict[str, deque[HistoryEntry]] = {}
        for entry in entries:
            self.add(entry)

    def add(self, entry: HistoryEntry) -> None:
        """Add an entry; ignored unless it has rows and took time."""
        if entry.rows > 0 and entry.compute + entry.transfer > 0:
            entries = self._entries.setdefault(entry.device, deque(maxlen=MAX_ENTRIES))
            entries.append(entry)

    def of(self, device: str) -> list[HistoryEntry]:
        """Return the entries of a device, oldest first."""
        return list(self._entries.get(device, ()))
