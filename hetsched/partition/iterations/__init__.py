"""Load balance of an iterative job, found while it runs: `IterationBalance`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hetsched.lazy import lazy_names

if TYPE_CHECKING:
    from hetsched.partition.iterations.balance import IterationBalance
    from hetsched.partition.iterations.history_table import HistoryTable
    from hetsched.partition.iterations.records import Move, TimedIteration

__all__ = ["HistoryTable", "IterationBalance", "Move", "TimedIteration"]

__getattr__ = lazy_names(
    __name__,
    {
        "HistoryTable": "history_table",
        "IterationBalance": "balance",
        "Move": "records",
        "TimedIteration": "records",
    },
)
