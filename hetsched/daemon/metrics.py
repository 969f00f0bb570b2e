"""What `hetsched metrics` shows: jobs that have ended, and the present state of the daemon.

Bounded: labels are devices, phases, states, reasons and exit codes, never what a client chooses.
"""

from __future__ import annotations

import functools
from collections import Counter as Count
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import prometheus_client
from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from hetsched.engine.engine import Engine
from hetsched.errors import Cancelled
from hetsched.job import Ended, Failed, Queued, Running
from hetsched.jobs.table import JobRecord
from hetsched.store.journal import Journal

SECONDS = (0.001, 0.01, 0.1, 1.0, 10.0, 100.0, 1000.0)
RATIOS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0)
REASONS = ("priority", "resources", "held", "after", "retry")
"""First words of the reasons for which jobs wait; any other one counts as "other"."""

prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]


class Metrics:
    """Totals since the daemon's start, and its present state, which `present` returns."""

    def __init__(self, present: Callable[[], Iterable[Metric]]) -> None:
        self.collect = present
        self.ended = 0
        """Jobs that have ended."""
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)
        ProcessCollector(namespace="hetsched", registry=self._registry)
        registry = self._registry
        count = functools.partial(Counter, namespace="hetsched", registry=registry)
        observe = functools.partial(
            Histogram, namespace="hetsched", registry=registry, buckets=SECONDS
        )
        self._ended = count("jobs_ended", "Jobs that have ended.", ["state", "code"])
        self._refused = count(
            "submissions_refused", "Refused submissions, by exit code.", ["code"]
        )
        self._queue = observe("job_queue_seconds", "Time from submission to start.")
        self._run = observe(
            "job_run_seconds", "Time from the first chunk's start to the last's end."
        )
        self._total = observe("job_total_seconds", "Time from submission to the end.")
        self._error = observe(
            "job_prediction_error_ratio",
            "Absolute error of predicted run times, relative to the measured ones.",
            buckets=RATIOS,
        )
        self._spread = observe(
            "job_spread_ratio", "Relative difference of the devices' times.", buckets=RATIOS
        )
        self._phases = count(
            "device_phase_seconds",
            "Time that devices spent copying in (h2d), computing and copying out (d2h).",
            ["device", "phase"],
        )
        self._units = count("device_units", "Units that devices have computed.", ["device"])
        self.rejected_frames = count("rejected_frames", "Dropped messages of several frames.")
        self.rejected_requests = count(
            "rejected_requests", "Dropped frames that weren't requests."
        )
        self.dropped_events = count(
            "dropped_events", "Events not sent to clients that didn't read."
        )
        self.disconnected_clients = count(
            "disconnected_clients", "Clients disconnected because they didn't read."
        )

    def text(self) -> str:
        return prometheus_client.generate_latest(self._registry).decode()

    def on_refused(self, code: int) -> None:
        self._refused.labels(str(code)).inc()

    def on_end(self, job: JobRecord, state: Ended) -> None:
        code = state.error.code if isinstance(state, Failed) else 0
        word = {0: "done", Cancelled.code: "cancelled"}.get(code, "failed")
        self.ended += 1
        self._ended.labels(word, str(code)).inc()
        assert job.ended_at is not None
        if job.started_at is not None:  # the clock may have been set back
            self._queue.observe(max(0.0, job.started_at - job.submitted_at))
        self._total.observe(max(0.0, job.ended_at - job.submitted_at))
        report = state.report
        if report.seconds is not None:
            self._run.observe(report.seconds)
            if report.predicted_seconds is not None and report.seconds > 0:
                self._error.observe(abs(report.predicted_seconds / report.seconds - 1))
        if report.spread is not None:
            self._spread.observe(report.spread)
        for device in report.devices:
            self._phases.labels(device.device, "h2d").inc(device.copy_in_seconds)
            self._phases.labels(device.device, "compute").inc(device.compute_seconds)
            self._phases.labels(device.device, "d2h").inc(device.copy_out_seconds)
            self._units.labels(device.device).inc(device.share)


def present_state(clients: int, engine: Engine, journal: Journal) -> Iterator[Metric]:
    """Return jobs, devices (the reasons are in `hetsched devices`) and memory as they are now.

    O(unfinished jobs).
    """
    table, arena = engine.table, engine.arena
    jobs = Count({("queued", "resources"): 0, ("running", ""): 0})
    jobs.update(_state(job) for job in table.unfinished.values())
    yield _gauges("jobs", "Jobs that wait (by reason) or run.", jobs, "state", "reason")
    listed = engine.devices()
    usable = {(info.name,): 1.0 for info in listed.devices}
    usable |= {(name,): 0.0 for name in listed.absent}
    help = "1 for a device that takes jobs, 0 for one that is missing, failed or quarantined."
    yield _gauges("device_up", help, usable, "device")
    memory = {("used",): arena.used, ("warm",): arena.warm, ("limit",): arena.limit}
    help = "Shared memory: in use, free but kept, and the limit."
    yield _gauges("arena_bytes", help, memory, "kind")
    commits = journal.statistics
    for name, help, value in (
        ("sessions", "Connected clients.", clients),
        ("follows", "Requests that follow a job.", table.followers.follows.total()),
        ("kept_results_bytes", "Results kept for clients.", table.results.nbytes),
        ("loop_longest_callback_seconds", "Of the event loop.", engine.loop.longest_callback),
        ("journal_longest_commit_seconds", "Time of the slowest commit.", commits.longest),
        ("journal_last_commit_timestamp_seconds", "0: there was none.", commits.last_at or 0.0),
        (
            "journal_failing",
            "1 while the journal can't be written; durable jobs are refused.",
            float(journal.failure is not None),
        ),
    ):
        yield _gauges(name, help, {(): value})
    for name, help, value in (
        ("journal_commits", "Commits of the journal.", commits.commits),
        ("journal_commit_failures", "Commits that failed.", commits.failures),
        ("journal_commit_seconds", "Time that commits took.", commits.seconds),
    ):
        yield CounterMetricFamily(f"hetsched_{name}", help, value)


def _gauges(name: str, help: str, values: Mapping[Any, float], *labels: str) -> Metric:
    family = GaugeMetricFamily(f"hetsched_{name}", help, labels=labels)
    for key, value in values.items():
        family.add_metric(key, value)
    return family


def _state(job: JobRecord) -> tuple[str, str]:
    if isinstance(job.state, Running):
        return "running", ""
    reason = job.state.reason if isinstance(job.state, Queued) else ""
    word = reason.split(maxsplit=1)[0] if reason else "resources"
    return "queued", word if word in REASONS else "other"
