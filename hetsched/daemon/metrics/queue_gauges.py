"""The present state of jobs, sessions and results, from the daemon's bookkeeping. Pure."""

from __future__ import annotations

from collections import Counter

from hetsched.daemon.ledger import Ledger
from hetsched.daemon.records import JobEntry
from hetsched.job import Queued, Running
from hetsched.transport.inspection.metric_records import Metric, gauge, labelled

REASONS = ("priority", "resources", "held", "after", "retry")
"""First words of the reasons for which jobs wait; any other one counts as "other"."""


def queue_gauges(ledger: Ledger) -> list[Metric]:
    """Return the gauges. O(tickets)."""
    states = Counter(_state(entry) for entry in ledger.tickets.values() if not entry.has_ended)
    for key in (("queued", "resources"), ("running", "")):
        states.setdefault(key, 0)
    return [
        labelled(
            "hetsched_jobs", "gauge", "Jobs that wait (by reason) or run.",
            dict(states), "state", "reason",
        ),
        gauge("hetsched_sessions", "Connected clients.", len(ledger.sessions)),
        gauge("hetsched_follows", "Requests that follow a job.", ledger.follows.total()),
        gauge("hetsched_kept_results_bytes", "Results kept for clients.", ledger.results.nbytes),
        gauge("hetsched_draining", "1 while the daemon stops.", float(ledger.is_draining)),
    ]  # fmt: skip


def _state(entry: JobEntry) -> tuple[str, ...]:
    if isinstance(entry.state, Running):
        return "running", ""
    reason = entry.state.reason if isinstance(entry.state, Queued) else ""
    word = reason.split(maxsplit=1)[0] if reason else "resources"
    return "queued", word if word in REASONS else "other"
