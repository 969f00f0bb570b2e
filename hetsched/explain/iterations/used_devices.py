"""An explanation shows only the devices that a job has used. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from hetsched.explain.iterations.records import IterationHistory, IterationSpan, RowMove

_BY_DEVICE = ("rows", "compute", "transfer", "wait", "converge", "save")


def with_used_devices(history: IterationHistory) -> IterationHistory:
    """Return `history` without devices that never had rows. O(spans x devices)."""
    rows = [span.rows for span in history.spans] + [move.before for move in history.moves]
    used = [index for index, counts in enumerate(zip(*rows, strict=True)) if any(counts)]
    if not rows or len(used) == len(history.devices):
        return history
    return msgspec.structs.replace(
        history,
        devices=_chosen(history.devices, used),
        spans=tuple(_span(span, used) for span in history.spans),
        moves=tuple(_move(move, used) for move in history.moves),
    )


def _span(span: IterationSpan, used: Sequence[int]) -> IterationSpan:
    chosen = {field: _chosen(getattr(span, field), used) for field in _BY_DEVICE}
    return msgspec.structs.replace(span, **chosen)


def _move(move: RowMove, used: Sequence[int]) -> RowMove:
    chosen = {name: _chosen(getattr(move, name), used) for name in ("before", "rows", "busy")}
    return msgspec.structs.replace(move, **chosen)


def _chosen(values: tuple[Any, ...], used: Sequence[int]) -> tuple[Any, ...]:
    return tuple(values[index] for index in used)
