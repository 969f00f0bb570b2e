"""Which measurement goes into which curve (Ilic & Sousa, sections 2 and 4)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol

from hetsched.models.evidence.duplex import Copy, Span, beside, one_way

CurveName = Literal["total", "compute", "h2d", "d2h", "h2d_beside", "d2h_beside", "host_overhead"]
"""The four curves of a device; what copies take while the other direction is busy; and its
host overhead."""


class Phases(Protocol):
    """Start and end of each phase of one chunk, seconds: a `hetsched.device.ChunkTimes`."""

    @property
    def copy_in(self) -> Span | None: ...
    @property
    def compute(self) -> Span: ...
    @property
    def copy_out(self) -> Span | None: ...
    @property
    def start(self) -> float: ...
    @property
    def end(self) -> float: ...
    @property
    def busy(self) -> float | None: ...
    @property
    def host_overhead(self) -> float | None: ...
    @property
    def cold(self) -> bool: ...


SHARED = 1.1
"""Wall time over processor time from which on a core was not the job's alone: twice the noise of a
quiet machine. Arbitrary."""
JUDGED = 0.02
"""Seconds. Arbitrary: a few ticks of the scheduler."""

Done = Sequence[tuple[int, Phases]]
"""(units, times) of each chunk, in the order in which they ran."""


@dataclass(frozen=True)
class Sample:
    """`units` took `seconds`: one observation for one curve of a device.

    `contended`: something else than the work took part of the time, or the kernel ran for the
    first time in its process; to be kept apart from what the device does by itself.
    """

    curve: CurveName
    units: int
    seconds: float
    contended: bool = False


def samples(
    chunks: Done,
    sub_distributions: Sequence[Sequence[int]],
    share: int,
    wall: float,
    *,
    link: bool | None = None,
) -> list[Sample]:
    """What one device's part of one run teaches.

    Parameters
    ----------
    chunks : sequence of (int, ChunkTimes), units
        As they ran.
    sub_distributions : sequence of sequences of int, units
        As planned. One whose chunks didn't run as planned teaches nothing as a whole.
    share : int, units
    wall : float, seconds
        From the first chunk's start to the last one's end.
    link : bool, optional
        Whether the copies belong to the device. By default, whether there were any.

    Returns
    -------
    list of Sample
        With a link: each chunk to compute, h2d, d2h and host_overhead (copies beside those of the
        other direction only where none was alone), and the sum of its phases to total; each
        sub-distribution, if there are several, and the whole share to total. Without: each chunk
        to compute, the whole share to total. Phases too short for the clock are left out, and so
        is a chunk that was the first of its kernel in its process (`ChunkTimes.cold`), also out
        of a whole share without a link; unless there was nothing else, as in a small job in a
        process of its own. All are as_contended as contended if others used the core (`shared`).
    """
    if link is None:
        link = any(times.copy_in or times.copy_out for _, times in chunks)
    warm = [(units, times) for units, times in chunks if not times.cold]
    if not warm:
        warm = list(chunks)
    elif not link and len(warm) < len(chunks):
        share -= sum(units for units, times in chunks if times.cold)
        wall -= sum(times.end - times.start for _, times in chunks if times.cold)
    found = [Sample("compute", units, _length(times.compute)) for units, times in warm]
    if link:
        found += _phases(warm, chunks)
        found += _host_overheads(warm)
        # A single chunk is the whole share, and the wall time then says the same thing better.
        if len(chunks) > 1:
            found += [Sample("total", units, _phase_sum(times)) for units, times in warm]
        if len(sub_distributions) > 1:
            found += _groups(chunks, sub_distributions)
    found.append(Sample("total", share, wall))
    good = [s for s in found if s.units > 0 and s.seconds > 0 and math.isfinite(s.seconds)]
    return as_contended(good) if shared(chunks) else good


def as_contended(found: Sequence[Sample]) -> list[Sample]:
    """`found`, as of a run that was contended."""
    return [replace(one, contended=True) for one in found]


def shared(chunks: Done) -> bool:
    """Whether somebody else had the core for a good part of the computations.

    Computations that last less than `JUDGED` together aren't judged: on so small a scale the
    engine itself, which has no core of its own, is the one who disturbs.
    """
    known = [(_length(times.compute), times.busy) for _, times in chunks if times.busy is not None]
    wall = sum(seconds for seconds, _ in known)
    busy = sum(seconds for _, seconds in known if seconds is not None)
    return wall >= JUDGED and wall > SHARED * busy


def duplex_samples(chunks: Done) -> list[Sample]:
    """What one device's part of one run teaches of copies beside the other direction's."""
    copies_in, copies_out = _copies(chunks)
    spans_in, spans_out = _spans(chunks)
    return [
        *(Sample("h2d_beside", *one) for one in beside(copies_in, spans_out)),
        *(Sample("d2h_beside", *one) for one in beside(copies_out, spans_in)),
    ]


def _copies(chunks: Done) -> tuple[list[Copy], list[Copy]]:
    return (
        [(units, times.copy_in) for units, times in chunks if times.copy_in],
        [(units, times.copy_out) for units, times in chunks if times.copy_out],
    )


def _spans(chunks: Done) -> tuple[list[Span], list[Span]]:
    copies_in, copies_out = _copies(chunks)
    return [span for _, span in copies_in], [span for _, span in copies_out]


def _host_overheads(chunks: Done) -> Iterator[Sample]:
    for units, times in chunks:
        if times.host_overhead is not None:
            yield Sample("host_overhead", units, times.host_overhead)


def _phases(taught: Done, chunks: Done) -> Iterator[Sample]:
    """Of the copies of some of the chunks."""
    copies_in, copies_out = _copies(taught)
    spans_in, spans_out = _spans(chunks)
    yield from (Sample("h2d", *one) for one in one_way(copies_in, spans_out))
    yield from (Sample("d2h", *one) for one in one_way(copies_out, spans_in))


def _groups(chunks: Done, sub_distributions: Sequence[Sequence[int]]) -> Iterator[Sample]:
    first = 0
    for planned in sub_distributions:
        ran = chunks[first : first + len(planned)]
        if [units for units, _ in ran] != list(planned):
            return
        if ran:
            start = min(times.start for _, times in ran)
            end = max(times.end for _, times in ran)
            yield Sample("total", sum(planned), end - start)
        first += len(planned)


def _length(phase: Span | None) -> float:
    return phase[1] - phase[0] if phase else 0.0


def _phase_sum(times: Phases) -> float:
    return _length(times.copy_in) + _length(times.compute) + _length(times.copy_out)
