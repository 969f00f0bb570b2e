"""Records iterations in bounded memory: the longer the run, the more iterations share a span."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import msgspec

from hetsched.explain.records import (
    ITERATION_PHASES,
    IterationHistory,
    IterationSpan,
    RowMove,
    WrittenCheckpoint,
)
from hetsched.job import IterationSeconds

MAX_SPANS = 4096
"""Up to this many iterations are kept each."""
MIN_SPANS = 64
MAX_MOVES = 500


@dataclass
class _Constant:
    """Successive iterations with the same rows, and the move that led to them."""

    rows: tuple[int, ...]
    count: int = 0
    seconds: float = 0.0
    first_seconds: float = 0.0
    move: RowMove | None = None

    @property
    def mean(self) -> float | None:
        return self.seconds / self.count if self.count else None


class IterationRecorder:
    """The history of one job, fed with its complete iterations in order.

    `devices`: names by slot. `first`: the first iteration that is computed.
    """

    def __init__(self, devices: Sequence[str], first: int = 1) -> None:
        self._devices = tuple(devices)
        self._first = first
        self._last = first - 1
        self._seconds = 0.0
        self._residual: float | None = None
        self._converged: bool | None = None
        # Spans times devices: about 2 MB of JSON
        self._max_spans = max(MIN_SPANS, min(MAX_SPANS, (1 << 15) // max(1, len(devices))))
        self._spans: list[IterationSpan] = []
        self._span_length = 1
        self._constant: _Constant | None = None
        self._busy: tuple[float, ...] = ()
        self._moves: list[RowMove] = []
        self._omitted_moves = 0
        # A newer decision may replace one before its split is adopted.
        self._announced: deque[RowMove] = deque(maxlen=8)
        self._checkpoints: deque[WrittenCheckpoint] = deque(maxlen=100)
        self._written, self._paused = 0, 0.0
        self._repeated = 0

    @property
    def iterations(self) -> int:
        """The last recorded iteration."""
        return self._last

    @property
    def residual(self) -> float | None:
        return self._residual

    @property
    def moves(self) -> int:
        return len(self._moves) + self._omitted_moves + (self._pending_move is not None)

    def announce(self, move: RowMove) -> None:
        """Record why the rows will change, and what is expected; when they do is seen in `add`."""
        self._announced.append(move)

    def add(
        self,
        iteration: int,
        rows: Sequence[int],
        phases: Sequence[IterationSeconds | None],
        residual: float | None = None,
        count: int = 1,
    ) -> None:
        """Record a complete iteration, or the last one of `count` with the same rows.

        If it is the first one again, those before were rounds of a warm-up, which are forgotten.
        `rows`, `phases` (means): by slot; 0 and None for devices that aren't in the epoch.
        """
        if iteration <= self._last:
            self._spans.clear()
            self._seconds, self._constant = 0.0, None
        span = _span(iteration - count + 1, tuple(rows), phases, residual, count)
        self._last, self._residual = iteration, span.residual
        self._seconds += span.seconds * count
        self._count(span)
        if self._spans and self._spans[-1].count < self._span_length:
            self._spans[-1] = _merged(self._spans[-1], span)
        else:
            self._spans.append(span)
        if len(self._spans) > self._max_spans:  # halve their number
            pairs = range(0, len(self._spans) - 1, 2)
            halved = [_merged(self._spans[i], self._spans[i + 1]) for i in pairs]
            self._spans = halved + self._spans[2 * len(halved) :]
            self._span_length *= 2

    def repeat(self, iterations: int = 1) -> None:
        """Record that this many iterations are computed again."""
        self._repeated += iterations

    def go_back(self, iteration: int, repeated: int) -> None:
        """Record that so many iterations, those after `iteration`, are computed again.

        A span that ends later is cut: its means stay those of all its iterations.
        """
        self.repeat(repeated)
        self._first = min(self._first, max(0, iteration) + 1)
        self._last = min(self._last, max(0, iteration))
        kept = [span for span in self._spans if span.first <= iteration]
        if kept and kept[-1].last > iteration:
            kept[-1] = msgspec.structs.replace(kept[-1], count=iteration + 1 - kept[-1].first)
        self._spans = kept

    def checkpoint(self, record: WrittenCheckpoint) -> None:
        self._checkpoints.append(record)
        self._written += 1
        self._paused += record.pause

    def end(self, converged: bool | None) -> None:
        self._converged = converged

    def history(self) -> IterationHistory:
        """Return everything so far, of all devices: see `with_used_devices`."""
        pending = self._pending_move
        return IterationHistory(
            devices=self._devices,
            first=self._first,
            iterations=self._last,
            seconds=self._seconds,
            residual=self._residual,
            converged=self._converged,
            spans=tuple(self._spans),
            moves=(*self._moves, pending) if pending else tuple(self._moves),
            omitted_moves=self._omitted_moves,
            checkpoints=tuple(self._checkpoints),
            written_checkpoints=self._written,
            checkpoint_seconds=self._paused,
            repeated=self._repeated,
        )

    def _count(self, span: IterationSpan) -> None:
        """Add an iteration to those with its rows; begin new ones if the rows are others."""
        constant = self._constant
        if constant is None:
            constant = self._constant = _Constant(span.rows)
        elif constant.rows != span.rows:
            if (ended := self._pending_move) is not None:
                self._moves.append(ended)
            if len(self._moves) > MAX_MOVES:
                del self._moves[MAX_MOVES // 2]
                self._omitted_moves += 1
            announced = [move for move in self._announced if move.rows == span.rows]
            move = msgspec.structs.replace(
                announced[-1] if announced else RowMove(rows=span.rows),
                after=span.first - 1,
                before=constant.rows,
                moved=sum(received(constant.rows, span.rows)),
                busy=self._busy,
                seconds_before=constant.mean,
            )
            constant = self._constant = _Constant(span.rows, move=move)
        if not constant.count:
            constant.first_seconds = span.seconds
        constant.count += span.count
        constant.seconds += span.seconds * span.count
        parts = zip(span.compute, span.transfer, span.converge, span.save, strict=True)
        self._busy = tuple(map(sum, parts))

    @property
    def _pending_move(self) -> RowMove | None:
        """The move to the present rows, with what was measured since."""
        constant = self._constant
        if constant is None or constant.move is None:
            return None
        return msgspec.structs.replace(
            constant.move,
            seconds_after=constant.mean,
            first_seconds=constant.first_seconds,
            iterations=constant.count,
        )


def received(before: Sequence[int], after: Sequence[int]) -> tuple[int, ...]:
    """Return the rows that each device gets from others: shares are contiguous, in this order."""
    old, new = list(accumulate(before, initial=0)), list(accumulate(after, initial=0))
    return tuple(
        new[i + 1] - new[i] - max(0, min(old[i + 1], new[i + 1]) - max(old[i], new[i]))
        for i in range(len(after))
    )


def with_used_devices(history: IterationHistory) -> IterationHistory:
    """Return `history` without devices that never had rows. O(spans x devices)."""
    rows = [span.rows for span in history.spans] + [move.before for move in history.moves]
    used = [index for index, counts in enumerate(zip(*rows, strict=True)) if any(counts)]
    if not rows or len(used) == len(history.devices):
        return history

    def chosen(record: Any, *fields: str) -> Any:
        values = {f: tuple(getattr(record, f)[i] for i in used) for f in fields}
        return msgspec.structs.replace(record, **values)

    only: IterationHistory = chosen(history, "devices")
    return msgspec.structs.replace(
        only,
        spans=tuple(chosen(span, "rows", *ITERATION_PHASES) for span in history.spans),
        moves=tuple(chosen(move, "before", "rows", "busy") for move in history.moves),
    )


def _span(
    iteration: int,
    rows: tuple[int, ...],
    phases: Sequence[IterationSeconds | None],
    residual: float | None,
    count: int,
) -> IterationSpan:
    by_phase: dict[str, tuple[float, ...]] = {
        phase: tuple(0.0 if each is None else getattr(each, phase) for each in phases)
        for phase in ITERATION_PHASES
    }
    totals = map(sum, zip(*by_phase.values(), strict=True))
    took_part = sum(phase is not None for phase in phases)
    return IterationSpan(
        first=iteration,
        count=count,
        seconds=sum(totals) / max(1, took_part),  # all wait for each other, so they hardly differ
        residual=finite(residual),
        rows=rows,
        **by_phase,
    )


def _merged(a: IterationSpan, b: IterationSpan) -> IterationSpan:
    count = a.count + b.count

    def mean(first: float, second: float) -> float:
        return (first * a.count + second * b.count) / count

    means = {
        phase: tuple(map(mean, getattr(a, phase), getattr(b, phase))) for phase in ITERATION_PHASES
    }
    return IterationSpan(
        first=a.first,
        count=count,
        seconds=mean(a.seconds, b.seconds),
        residual=b.residual,
        rows=b.rows,
        **means,
    )


def finite(value: float | None) -> float | None:
    """Return `value` if it is a number: JSON has no others."""
    return value if value is not None and math.isfinite(value) else None
