"""What an iterative job did in each iteration: records, and the recorder that makes them. Pure."""

from hetsched.explain.iterations.records import (
    IterationHistory,
    IterationSpan,
    RowMove,
    WrittenCheckpoint,
)

__all__ = ["IterationHistory", "IterationSpan", "RowMove", "WrittenCheckpoint"]
