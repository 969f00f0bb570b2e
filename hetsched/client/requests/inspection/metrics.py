"""Metrics: counters and gauges of the daemon, its jobs and its devices."""

from __future__ import annotations

from hetsched.client.connection import Connection
from hetsched.client.handlers import expect
from hetsched.transport.inspection.metric_records import Metric
from hetsched.transport.messages import MetricList, Metrics


def metrics(connection: Connection) -> tuple[Metric, ...]:
    return expect(MetricList, connection.ask(Metrics())).metrics
