"""One run's observations: a median per curve and size; how stored runs are separated; and how much
slower fresh processes are. Pure.

The first run with a library in a process is slower: code is loaded, page tables are filled, caches
and branch predictors learn. Its time is kept as the curve "cold", its ratio to the warm curve is
learnt, and the run counts as evidence of the warm speed only after division by that ratio. So
neither `hetsched run`, whose processes are always fresh, nor the first job of a daemon distorts
the models of the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import get_args

from msgspec.structs import replace

from hetsched.models import PiecewiseLinear
from hetsched.models.cold_ratios import ColdRatios
from hetsched.models.curves.curve import SpeedFunction
from hetsched.models.evidence.confidence import robust_median
from hetsched.models.evidence.observations import ObservationWindows
from hetsched.models.evidence.samples import CurveName, Sample

RunMedian = tuple[float, float, int]
"""Units, median seconds, chunks."""


def medians_by_curve(samples: Sequence[Sample]) -> dict[CurveName, list[RunMedian]]:
    """Return the median time of each curve and size of one run.

    One observation each, because repeats within a run aren't independent. "total" comes last.
    """
    repeats: dict[CurveName, dict[int, list[Sample]]] = {}
    for sample in samples:
        repeats.setdefault(sample.curve, {}).setdefault(sample.units, []).append(sample)
    return {
        curve: [_median(units, same_size) for units, same_size in repeats[curve].items()]
        for curve in get_args(CurveName)[::-1]
        if curve in repeats
    }


def _median(units: int, samples: Sequence[Sample]) -> RunMedian:
    seconds = robust_median([sample.seconds for sample in samples])
    return float(units), seconds, sum(sample.chunks for sample in samples)


def run_medians(samples: Sequence[Sample]) -> list[Sample]:
    """Return the observations of one run that count: the median of each curve and size."""
    contended = any(sample.contended for sample in samples)
    return [
        Sample(curve, round(units), seconds, contended, chunks)
        for curve, observations in medians_by_curve(samples).items()
        for units, seconds, chunks in observations
    ]


def is_ratio(sample: Sample) -> bool:
    """Return whether a sample describes its run, as a ratio or a number of units, not a time."""
    return sample.curve in ("variation", "contention", "call")


def split_runs(samples: Iterable[Sample]) -> Iterator[list[Sample]]:
    """Split observations of several runs, each as `run_medians` returns them, into runs."""
    run: list[Sample] = []
    for sample in samples:
        repeated = any((sample.curve, sample.units) == (other.curve, other.units) for other in run)
        if run and (repeated or (run[-1].curve == "total" != sample.curve)):
            yield run
            run = []
        run.append(sample)
    if run:
        yield run


def cold_ratios(cold: ObservationWindows, total: SpeedFunction) -> ColdRatios:
    """Return the times of shares in fresh processes over those in warm ones."""
    return ColdRatios(
        tuple((units, seconds / float(total.time(units))) for units, seconds, _ in cold.latest())
    )


def warm_samples(
    samples: Sequence[Sample],
    fresh: Sample,
    total: ObservationWindows | None,
    cold: ObservationWindows | None,
) -> list[Sample]:
    """Return the samples of a run in a fresh process, with its total as in a warm one.

    Chunk times say nothing about warm processes, so they are dropped; the first run of all is the
    best guess of both. A contended run shows contention, not how much slower fresh processes are;
    if there are only such runs, nothing tells the two apart.

    Parameters
    ----------
    fresh : Sample
        Of the curve "cold".
    total, cold : ObservationWindows or None
        Shares in warm and in fresh processes without contention.
    """
    if total is None and not fresh.contended:
        return list(samples)
    if total is None:
        others = [sample for sample in samples if sample.curve not in ("cold", "total")]
        return [*others, replace(fresh, curve="total")]
    calls = [sample for sample in samples if sample.curve == "call"]
    if fresh.contended:
        return [*calls, warm_total(fresh, cold or ObservationWindows(), total)]
    if cold is None or not cold_ratios(cold, PiecewiseLinear.of(total)).covers(fresh.units):
        cold = ObservationWindows([(fresh.units, fresh.seconds)])
    return [*calls, fresh, warm_total(fresh, cold, total)]


def warm_total(fresh: Sample, cold: ObservationWindows, total: ObservationWindows) -> Sample:
    """Return the whole share of a fresh process as a warm one would have computed it.

    Parameters
    ----------
    fresh : Sample
        Of the curve "cold".
    cold, total : ObservationWindows
        Shares in fresh and in warm processes.
    """
    ratio = cold_ratios(cold, PiecewiseLinear.of(total)).ratio(fresh.units)
    return replace(fresh, curve="total", seconds=fresh.seconds / ratio)
