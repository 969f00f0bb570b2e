"""A histogram with fixed buckets. Pure."""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate

from hetsched.transport.inspection.metric_records import Metric, MetricSample


class Histogram:
    """Counts of values up to each bound.

    Parameters
    ----------
    bounds : tuple of float
        Increasing upper ends of the buckets; larger values count too.
    """

    def __init__(self, name: str, help: str, bounds: tuple[float, ...]) -> None:
        self._name, self._help = name, help
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def metric(self) -> Metric:
        totals = list(accumulate(self._counts))
        ends = [*(f"{bound:g}" for bound in self._bounds), "+Inf"]
        buckets = [
            MetricSample(total, {"le": end}, "_bucket")
            for end, total in zip(ends, totals, strict=True)
        ]
        samples = (
            *buckets,
            MetricSample(self._sum, {}, "_sum"),
            MetricSample(totals[-1], {}, "_count"),
        )
        return Metric(self._name, "histogram", self._help, samples)
