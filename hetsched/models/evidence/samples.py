"""The assignment of measurements to curves (Ilic & Sousa, sections 2 and 4)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Annotated, Literal, Protocol

import msgspec
from msgspec.structs import replace

from hetsched.models.evidence.duplex import Copy, Span, duplex_times, one_way_times
from hetsched.units import NUMBER_LIMIT

CurveName = Literal[
    "total", "compute", "h2d", "d2h", "h2d_beside", "d2h_beside", "host_overhead", "variation",
    "contention", "cold", "call", "call_size",
]  # fmt: skip
"""The four curves of a device; copies while the other direction is busy; the host overhead; two
ratios of each run, as seconds of one unit: its measured over its expected time, and its slowdown
by contention; whole shares of a core in a process that runs its library for the first time
(`run_medians`); and of a core's calls, as seconds of one unit, the cost in units and the mean
size, which isn't stored (`call_cost`)."""


class PhaseTimes(Protocol):
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
    @property
    def taken(self) -> bool: ...


MAX_WALL_RATIO = 1.1
"""Ratio of wall to processor time above which a core was contended: twice the noise of a quiet
machine. Arbitrary."""
MIN_JUDGED_SECONDS = 0.02
"""Shorter computations aren't tested for contention. Arbitrary: a few ticks of the scheduler."""

MIN_SECONDS, MAX_SECONDS = 1e-18, 1e18
"""Shorter and longer ones aren't times: of a broken clock, for example. Arbitrary, so far apart
that ratios of times can be computed."""

TimedPhases = Sequence[tuple[int, PhaseTimes]]
"""(units, times) of each chunk, in execution order."""


Units = Annotated[int, msgspec.Meta(ge=1, le=NUMBER_LIMIT - 1)]
Seconds = Annotated[float, msgspec.Meta(ge=MIN_SECONDS, le=MAX_SECONDS)]
Moment = Annotated[float, msgspec.Meta(ge=0, lt=1e11)]
"""Seconds since the epoch."""


class Sample(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """`units` took `seconds`: one observation for one curve of a device. Stored like that.

    `contended`: another process took part of the time, or the kernel ran for the first time in
    its process. Such samples are kept separately. `chunks`: of which `seconds` is the median.
    `at`: when it was stored. The limits hold for decoded ones.
    """

    curve: CurveName
    units: Units
    seconds: Seconds
    contended: bool = False
    chunks: Units = 1
    at: Moment = 0.0


def is_time(seconds: float) -> bool:
    """Return whether a difference of two readings of a clock is a time; False for NaN."""
    return MIN_SECONDS <= seconds <= MAX_SECONDS


def run_samples(
    chunks: TimedPhases,
    sub_distributions: Sequence[Sequence[int]],
    share: int,
    wall: float,
    *,
    link: bool | None = None,
    planned: int | None = None,
    until: float = math.inf,
) -> list[Sample]:
    """Return the observations from one device's part of one run.

    Parameters
    ----------
    chunks : sequence of (int, ChunkTimes), units
        As they ran.
    sub_distributions : sequence of sequences of int, units
        As planned. One whose chunks didn't run as planned yields no observation of its total.
    share : int, units
    wall : float, seconds
        From the first chunk's start to the last one's end.
    link : bool, optional
        Whether the copies belong to the device. Default: whether there were copies.
    planned : int, units, optional
        The share of a core that took chunks from a tail, for which its total is reported.
    until : float, seconds; when the first of its co-runners finished (`_beside_co_runners`)

    Returns
    -------
    list of Sample
        With a link: each chunk for compute, h2d, d2h and host_overhead (two-way copies only
        without one-way ones), and the sum of its phases for total; each sub-distribution, if
        there are several, and the whole share for total. Without: each chunk for compute, the
        whole share for total. Phases too short for the clock are omitted. So is the first chunk
        of a kernel in its process (`ChunkTimes.cold`), also from a whole share without a link;
        unless all chunks are cold, as in a small job with a new process.
        All are marked as contended if other processes used the core (`is_contended`).
    """
    if link is None:
        link = any(times.copy_in or times.copy_out for _, times in chunks)
    warm = [(units, times) for units, times in chunks if not times.cold]
    if not warm:
        warm = list(chunks)
    elif not link and len(warm) < len(chunks):
        share -= sum(units for units, times in chunks if times.cold)
        wall -= sum(times.end - times.start for _, times in chunks if times.cold)
    share, wall = _of_planned_share(chunks, share, wall, planned)
    warm = _beside_co_runners(warm, until) if link else _without_taken(warm, planned)
    samples = [Sample("compute", units, _length(times.compute)) for units, times in warm]
    if link:
        samples += _copy_samples(warm, chunks)
        samples += _overhead_samples(warm)
        # A single chunk is the whole share, whose wall time is the better observation.
        if len(chunks) > 1:
            samples += [Sample("total", units, _phase_sum(times)) for units, times in warm]
        if len(sub_distributions) > 1:
            samples += _sub_distribution_samples(chunks, sub_distributions)
    samples.append(Sample("total", share, wall))
    valid = [s for s in samples if s.units > 0 and is_time(s.seconds)]
    return as_contended(valid) if is_contended(chunks) else valid


def fresh_samples(
    chunks: TimedPhases, share: int, wall: float, *, planned: int | None = None
) -> list[Sample]:
    """Return the time of a core's whole share in a fresh process, with its first chunk.

    Parameters as of `run_samples`. Empty if the time is too short for the clock.
    """
    share, wall = _of_planned_share(chunks, share, wall, planned)
    return [Sample("cold", share, wall)] if share > 0 and is_time(wall) else []


def without_total(samples: Sequence[Sample], chunks: TimedPhases) -> list[Sample]:
    """Drop the time of the whole share: its chunks weren't those of the best plan."""
    sizes = {units for units, _ in chunks}
    return [sample for sample in samples if sample.curve != "total" or sample.units in sizes]


def _of_planned_share(
    chunks: TimedPhases, share: int, wall: float, planned: int | None
) -> tuple[int, float]:
    """Return the share and time of a core; those of its planned share if it took chunks."""
    if planned is None or not any(times.taken for _, times in chunks):
        return share, wall
    return planned, wall * planned / max(share, 1)


def _without_taken(
    chunks: list[tuple[int, PhaseTimes]], planned: int | None
) -> list[tuple[int, PhaseTimes]]:
    """Drop chunks that were taken from a tail, unless all were or no share was `planned`.

    A core takes more when it is fast, so the times of what it really computed are about equal at
    all sizes: only the pace at its planned share is evidence.
    """
    own = [(units, times) for units, times in chunks if planned is None or not times.taken]
    return own or chunks


def _beside_co_runners(
    chunks: list[tuple[int, PhaseTimes]], until: float
) -> list[tuple[int, PhaseTimes]]:
    """Drop chunks that a device with a link computed after `until`, unless all were.

    Without co-runners they run faster, so their sizes, often the smallest, would seem fast.
    """
    return [(units, times) for units, times in chunks if times.compute[1] <= until] or chunks


def as_contended(samples: Sequence[Sample]) -> list[Sample]:
    """Return `samples` marked as contended."""
    return [replace(sample, contended=True) for sample in samples]


def is_contended(chunks: TimedPhases) -> bool:
    """Return whether other processes had the core for a good part of the computations.

    Computations shorter than `MIN_JUDGED_SECONDS` in all aren't tested: at that scale the engine
    itself, which has no core reserved, is the contender.
    """
    wall, busy = _compute_seconds(chunks)
    return wall >= MIN_JUDGED_SECONDS and wall > MAX_WALL_RATIO * busy


def contended_pace(own: TimedPhases, chunks: TimedPhases) -> float:
    """Return the seconds per unit of some of the chunks of a contended run.

    Other processes take the core at random, from long chunks and short ones, so `own` are charged
    the same part of their processor time as all of the run's `chunks`.
    """
    wall, busy = _compute_seconds(chunks)
    own_wall, own_busy = _compute_seconds(own)
    seconds = own_busy * wall / busy if own_busy > 0 else own_wall
    return seconds / sum(units for units, _ in own)


def _compute_seconds(chunks: TimedPhases) -> tuple[float, float]:
    """Return wall and processor time of the chunks whose processor time is known."""
    measured = [
        (_length(times.compute), times.busy) for _, times in chunks if times.busy is not None
    ]
    return sum(wall for wall, _ in measured), sum(busy for _, busy in measured)


def duplex_samples(chunks: TimedPhases) -> list[Sample]:
    """Return the observations of two-way copies from one device's run."""
    copies_in, copies_out = _copies(chunks)
    spans_in, spans_out = _spans(chunks)
    return [
        *(Sample("h2d_beside", *copy) for copy in duplex_times(copies_in, spans_out)),
        *(Sample("d2h_beside", *copy) for copy in duplex_times(copies_out, spans_in)),
    ]


def _copies(chunks: TimedPhases) -> tuple[list[Copy], list[Copy]]:
    return (
        [(units, times.copy_in) for units, times in chunks if times.copy_in],
        [(units, times.copy_out) for units, times in chunks if times.copy_out],
    )


def _spans(chunks: TimedPhases) -> tuple[list[Span], list[Span]]:
    copies_in, copies_out = _copies(chunks)
    return [span for _, span in copies_in], [span for _, span in copies_out]


def _overhead_samples(chunks: TimedPhases) -> Iterator[Sample]:
    for units, times in chunks:
        if times.host_overhead is not None:
            yield Sample("host_overhead", units, times.host_overhead)


def _copy_samples(observed: TimedPhases, chunks: TimedPhases) -> Iterator[Sample]:
    """Yield the copies of `observed`, a part of `chunks`."""
    copies_in, copies_out = _copies(observed)
    spans_in, spans_out = _spans(chunks)
    yield from (Sample("h2d", *copy) for copy in one_way_times(copies_in, spans_out))
    yield from (Sample("d2h", *copy) for copy in one_way_times(copies_out, spans_in))


def _sub_distribution_samples(
    chunks: TimedPhases, sub_distributions: Sequence[Sequence[int]]
) -> Iterator[Sample]:
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


def _phase_sum(times: PhaseTimes) -> float:
    return _length(times.copy_in) + _length(times.compute) + _length(times.copy_out)
