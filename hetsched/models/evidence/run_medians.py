"""One run's observations: a median per curve and size; and how stored runs are separated. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import get_args

from hetsched.models.evidence.confidence import robust_median
from hetsched.models.evidence.samples import CurveName, Sample


def medians_by_curve(samples: Sequence[Sample]) -> dict[CurveName, list[tuple[float, float]]]:
    """Return (units, median seconds) of each curve and size of one run.

    One observation each, because repeats within a run aren't independent. "total" comes last.
    """
    repeats: dict[CurveName, dict[int, list[float]]] = {}
    for sample in samples:
        repeats.setdefault(sample.curve, {}).setdefault(sample.units, []).append(sample.seconds)
    return {
        curve: [(float(units), robust_median(times)) for units, times in repeats[curve].items()]
        for curve in get_args(CurveName)[::-1]
        if curve in repeats
    }


def run_medians(samples: Sequence[Sample]) -> list[Sample]:
    """Return the observations of one run that count: the median of each curve and size."""
    contended = any(sample.contended for sample in samples)
    return [
        Sample(curve, round(units), seconds, contended)
        for curve, observations in medians_by_curve(samples).items()
        for units, seconds in observations
    ]


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
