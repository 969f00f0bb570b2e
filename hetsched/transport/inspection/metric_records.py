"""Measurements of the daemon, as Prometheus models them. No behaviour beyond construction."""

from __future__ import annotations

from typing import Literal

import msgspec

MetricKind = Literal["counter", "gauge", "histogram", "summary"]


class MetricSample(msgspec.Struct, frozen=True):
    """One value. `suffix`: appended to the metric's name ("_bucket", "_sum", "_total", ...)."""

    value: float
    labels: dict[str, str] = {}
    suffix: str = ""


class Metric(msgspec.Struct, frozen=True):
    """Samples with one name, of one kind. Names end in their base unit: seconds, bytes."""

    name: str
    kind: MetricKind
    help: str
    samples: tuple[MetricSample, ...]


def gauge(name: str, help: str, value: float) -> Metric:
    """Return a gauge without labels."""
    return Metric(name, "gauge", help, (MetricSample(value),))


def counter(name: str, help: str, value: float) -> Metric:
    """Return a counter without labels. `name` has no "_total"."""
    return Metric(name, "counter", help, (MetricSample(value, {}, "_total"),))


def labelled(
    name: str, kind: MetricKind, help: str, values: dict[tuple[str, ...], float], *labels: str
) -> Metric:
    """Return gauges or counters, from label values to value."""
    suffix = "_total" if kind == "counter" else ""
    samples = tuple(
        MetricSample(value, dict(zip(labels, key, strict=True)), suffix)
        for key, value in values.items()
    )
    return Metric(name, kind, help, samples)
