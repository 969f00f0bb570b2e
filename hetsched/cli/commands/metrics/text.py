"""Prometheus's text format, version 0.0.4. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from hetsched.transport.inspection.metric_records import Metric

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def prometheus_text(metrics: Iterable[Metric]) -> str:
    """Return all metrics, each line ended by a line feed."""
    return "".join(f"{line}\n" for metric in metrics for line in _lines(metric))


def _lines(metric: Metric) -> Iterator[str]:
    # A counter is named with its "_total" in this format.
    name = f"{metric.name}_total" if metric.kind == "counter" else metric.name
    help = metric.help.replace("\\", "\\\\").replace("\n", "\\n")
    yield f"# HELP {name} {help}"
    yield f"# TYPE {name} {metric.kind}"
    for sample in metric.samples:
        yield f"{metric.name}{sample.suffix}{_labels(sample.labels)} {_number(sample.value)}"


def _labels(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    pairs = (f'{name}="{_escaped(value)}"' for name, value in labels.items())
    return f"{{{','.join(pairs)}}}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(float(value))
