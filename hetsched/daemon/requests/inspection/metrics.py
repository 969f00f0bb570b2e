"""Metrics: counters and gauges of the daemon, its jobs and its devices."""

from __future__ import annotations

from hetsched.daemon.commands import CollectMetrics, Command
from hetsched.daemon.ledger import Ledger
from hetsched.daemon.metrics.queue_gauges import queue_gauges
from hetsched.daemon.records import Requester
from hetsched.transport.messages import Metrics


def handle(ledger: Ledger, requester: Requester, request: Metrics, now: float) -> list[Command]:
    """Have the server add what it knows of the process to what is known of jobs."""
    metrics = (*queue_gauges(ledger), *ledger.metrics.metrics())
    uptime = now - ledger.daemon.started
    return [CollectMetrics(requester.identity, requester.number, metrics, uptime)]
