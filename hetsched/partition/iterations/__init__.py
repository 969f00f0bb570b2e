"""Load balance of an iterative job, found while it runs: `IterationBalance`."""

from hetsched.partition.iterations.balance import IterationBalance
from hetsched.partition.iterations.history_table import HistoryTable
from hetsched.partition.iterations.records import Move, TimedIteration

__all__ = ["HistoryTable", "IterationBalance", "Move", "TimedIteration"]
