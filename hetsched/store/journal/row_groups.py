"""Many records with few statements: each statement costs the interpreter's lock twice. Pure.

Rows of a kind are collected and written together, with kinds in the order of their `rank`, in
which the records of one job normally come. A row whose job already has one of the same or a later
rank begins a new group.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from hetsched.store.journal.journal_db import Kind, Statement

_SIZES = (64, 8, 1)
"""Rows per statement: few sizes, since SQLite's compiled statements are cached by their text."""
_SQL: dict[tuple[Kind, int], str] = {}
"""Texts of statements; one for each kind and size."""


def grouped(statements: Iterable[Statement]) -> Iterator[tuple[str, list[Any]]]:
    """Yield (SQL, bindings) that have the same effect as these statements in order."""
    ranks: dict[Any, int] = {}
    groups: dict[Kind, list[tuple[Any, ...]]] = {}
    for kind, row in statements:
        if ranks.get(row[0], -1) >= kind.rank:
            yield from _written(groups)
            ranks, groups = {}, {}
        ranks[row[0]] = kind.rank
        groups.setdefault(kind, []).append(row)
    yield from _written(groups)


def _written(groups: dict[Kind, list[tuple[Any, ...]]]) -> Iterator[tuple[str, list[Any]]]:
    for kind in sorted(groups, key=lambda kind: kind.rank):
        rows, begin = groups[kind], 0
        for size in _SIZES:
            while len(rows) - begin >= size:
                batch = rows[begin : begin + size]
                yield _sql(kind, size), [value for row in batch for value in row]
                begin += size


def _sql(kind: Kind, rows: int) -> str:
    text = _SQL.get((kind, rows))
    if text is None:
        text = _SQL[kind, rows] = kind.sql(rows)
    return text
