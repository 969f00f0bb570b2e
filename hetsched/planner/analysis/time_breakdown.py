"""The use of one device's time, from the start and end of each phase of its chunks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hetsched.device import ChunkTimeline, ChunkTimes, Timeline
from hetsched.explain import PhaseSeconds, TimeBreakdown

Span = tuple[float, float]


def measured_timeline(
    chunks: Iterable[tuple[int, ChunkTimes]], zero: float, variants: Sequence[str] = ()
) -> Timeline:
    """Return (units, times) of each chunk as a timeline in seconds from `zero`, by start.

    `variants`: of a race, by the number of the kernel.
    """
    ordered = sorted(chunks, key=lambda chunk: chunk[1].start)
    timelines = tuple(
        ChunkTimeline(
            units,
            _since(zero, times.copy_in),
            (times.compute[0] - zero, times.compute[1] - zero),
            _since(zero, times.copy_out),
            variants[times.kernel] if len(variants) > 1 else "",
            times.taken,
        )
        for units, times in ordered
    )
    ends = [times.end - zero for _, times in ordered]
    return Timeline(max(ends, default=0.0), timelines)


def _since(zero: float, span: Span | None) -> Span | None:
    return None if span is None else (span[0] - zero, span[1] - zero)


def phase_seconds(line: Timeline) -> PhaseSeconds:
    """Return the seconds of each kind of phase, summed over the chunks."""
    return PhaseSeconds(
        copy_in=sum(_length(chunk.copy_in) for chunk in line.chunks),
        compute=sum(_length(chunk.compute) for chunk in line.chunks),
        copy_out=sum(_length(chunk.copy_out) for chunk in line.chunks),
    )


def hidden_fraction(line: Timeline) -> float | None:
    """Return the fraction of the copies' time that overlapped other phases; None without copies.

    The time saved by overlap is the sum of all phases less the time in which any was running. It
    consists of copies only, in one direction or in both at once.
    """
    sums = phase_seconds(line)
    if sums.copies <= 0:
        return None
    saved = sums.compute + sums.copies - covered(_all_spans(line.chunks))
    return min(max(saved / sums.copies, 0.0), 1.0)


def time_breakdown(line: Timeline, total: float) -> TimeBreakdown:
    """Return a device's use of the `total` seconds of a job; the parts sum to the total."""
    if not line.chunks:
        return TimeBreakdown(computing=0.0, copying=0.0, between=0.0, before=0.0, idle=total)
    spans = _all_spans(line.chunks)
    first, last = min(start for start, _ in spans), max(end for _, end in spans)
    computing = covered(chunk.compute for chunk in line.chunks)
    busy = covered(spans)
    return TimeBreakdown(
        computing=computing,
        copying=max(busy - computing, 0.0),
        between=max(last - first - busy, 0.0),
        before=max(first, 0.0),
        idle=max(total - last, 0.0),
    )


def covered(spans: Iterable[Span]) -> float:
    """Return the seconds during which at least one of `spans` runs. O(n log n)."""
    total, covered_until = 0.0, float("-inf")
    for start, end in sorted(spans):
        total += max(0.0, end - max(start, covered_until))
        covered_until = max(covered_until, end)
    return total


def _all_spans(chunks: Sequence[ChunkTimeline]) -> list[Span]:
    spans = [(chunk.copy_in, chunk.compute, chunk.copy_out) for chunk in chunks]
    return [span for chunk in spans for span in chunk if span is not None]


def _length(span: Span | None) -> float:
    return 0.0 if span is None else span[1] - span[0]
