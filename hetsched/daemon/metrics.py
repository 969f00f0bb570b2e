"""What `hetsched metrics` shows: jobs that have ended, and the present state of the daemon.

Bounded: labels are devices, phases, states, reasons and exit codes, never what a client chooses.
"""

from __future__ import annotations

from collections import Counter as Count
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping

import prometheus_client
from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from hetsched.device import DeviceInfo
from hetsched.errors import Cancelled
from hetsched.job import Done, Failed, JobReport, Queued, Running
from hetsched.jobs.durability import Durability
from hetsched.jobs.job import Job
from hetsched.store.journal import Journal
from hetsched.transport.arena import Arena

SECONDS = (0.001, 0.01, 0.1, 1.0, 10.0, 100.0, 1000.0)
RATIOS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0)
REASONS = ("priority", "resources", "held", "after", "retry")
"""First words of the reasons for which jobs wait; any other one counts as "other"."""

prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]


class Metrics:
    """Totals since the daemon's start.

    Attributes
    ----------
    states : list of callables
        Each returns further metrics, as they are when they are asked for.
    ended : int
        Jobs that have ended.
    """

    def __init__(self) -> None:
        self.states: list[Callable[[], Iterable[Metric]]] = []
        self.ended = 0
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)
        ProcessCollector(namespace="hetsched", registry=self._registry)
        self._ended = self.counter("jobs_ended", "Jobs that have ended.", "state", "code")
        self._refused = self.counter(
            "submissions_refused", "Refused submissions, by exit code.", "code"
        )
        self._queue = self._histogram("job_queue_seconds", "Time from submission to start.")
        self._run = self._histogram(
            "job_run_seconds", "Time from the first chunk's start to the last's end."
        )
        self._total = self._histogram("job_total_seconds", "Time from submission to the end.")
        self._error = self._histogram(
            "job_prediction_error_ratio",
            "Absolute error of predicted run times, relative to the measured ones.",
            RATIOS,
        )
        self._spread = self._histogram(
            "job_spread_ratio", "Relative difference of the devices' times.", RATIOS
        )
        self._phases: defaultdict[tuple[str, ...], float] = defaultdict(float)
        """(device, phase) -> seconds"""
        self._units: defaultdict[tuple[str, ...], int] = defaultdict(int)
        """(device,) -> units"""
        self._late = self.counter(
            "device_late_phases",
            "Phases of emulated devices that took longer than modelled.",
            "device",
        )

    def text(self) -> str:
        """Return all metrics in Prometheus's text format."""
        return prometheus_client.generate_latest(self._registry).decode()

    def collect(self) -> Iterator[Metric]:
        yield _counters(
            "device_phase_seconds",
            "Time that devices spent copying in (h2d), computing and copying out (d2h).",
            self._phases,
            "device",
            "phase",
        )
        yield _counters("device_units", "Units that devices have computed.", self._units, "device")
        for state in self.states:
            yield from state()

    def counter(self, name: str, help: str, *labels: str) -> Counter:
        return Counter(f"hetsched_{name}", help, labels, registry=self._registry)

    def on_refused(self, code: int) -> None:
        """Count a submission that was refused, by its exit code."""
        self._refused.labels(str(code)).inc()

    def on_end(self, state: Done | Failed, queued: float | None, total: float) -> None:
        """Count a job that has ended.

        `queued`, `total`: seconds from its submission to its start, None if it never started, and
        to its end.
        """
        code = state.error.code if isinstance(state, Failed) else 0
        word = {0: "done", Cancelled.code: "cancelled"}.get(code, "failed")
        self.ended += 1
        self._ended.labels(word, str(code)).inc()
        if queued is not None:
            self._queue.observe(max(0.0, queued))
        self._total.observe(max(0.0, total))
        self._observe_report(state.report)

    def _observe_report(self, report: JobReport) -> None:
        if report.seconds is not None:
            self._run.observe(report.seconds)
            if report.predicted_seconds is not None and report.seconds > 0:
                self._error.observe(abs(report.predicted_seconds / report.seconds - 1))
        if report.spread is not None:
            self._spread.observe(report.spread)
        for device in report.devices:
            name = device.device
            self._phases[name, "h2d"] += device.copy_in_seconds
            self._phases[name, "compute"] += device.compute_seconds
            self._phases[name, "d2h"] += device.copy_out_seconds
            self._units[(name,)] += device.share
            if device.late:
                self._late.labels(name).inc(device.late)

    def _histogram(self, name: str, help: str, buckets: tuple[float, ...] = SECONDS) -> Histogram:
        return Histogram(f"hetsched_{name}", help, buckets=buckets, registry=self._registry)


def gauge(name: str, help: str, value: float) -> Metric:
    return GaugeMetricFamily(f"hetsched_{name}", help, value)


def _counter(name: str, help: str, value: float) -> Metric:
    return CounterMetricFamily(f"hetsched_{name}", help, value)


def _counters(
    name: str, help: str, values: Mapping[tuple[str, ...], float], *labels: str
) -> Metric:
    """Return counters, from label values to value."""
    family = CounterMetricFamily(f"hetsched_{name}", help, labels=labels)
    for key, value in values.items():
        family.add_metric(key, value)
    return family


def _gauges(name: str, help: str, values: Mapping[tuple[str, ...], float], *labels: str) -> Metric:
    """Return gauges, from label values to value."""
    family = GaugeMetricFamily(f"hetsched_{name}", help, labels=labels)
    for key, value in values.items():
        family.add_metric(key, value)
    return family


def job_gauges(life: Durability, clients: int) -> list[Metric]:
    """Return the present state of jobs, clients and results. O(unfinished jobs)."""
    states = Count(_state(job) for job in life.table.unfinished.values())
    for key in (("queued", "resources"), ("running", "")):
        states.setdefault(key, 0)
    return [
        _gauges("jobs", "Jobs that wait (by reason) or run.", states, "state", "reason"),
        gauge("sessions", "Connected clients.", clients),
        gauge("follows", "Requests that follow a job.", life.followers.follows.total()),
        gauge("kept_results_bytes", "Results kept for clients.", life.table.results.nbytes),
        gauge("draining", "1 while the daemon stops.", float(life.is_draining)),
    ]


def machine_gauges(
    infos: Iterable[DeviceInfo], absent: Mapping[str, str], arena: Arena, longest_callback: float
) -> list[Metric]:
    """Return which devices can be used (the reasons are in `hetsched devices`), and memory."""
    usable: dict[tuple[str, ...], float] = {(info.name,): 1.0 for info in infos}
    usable.update({(name,): 0.0 for name in absent})
    memory: dict[tuple[str, ...], float] = {
        ("used",): arena.used,
        ("warm",): arena.warm,
        ("limit",): arena.limit,
    }
    return [
        _gauges(
            "device_up",
            "1 for a device that takes jobs, 0 for one that is missing, failed or quarantined.",
            usable,
            "device",
        ),
        _gauges(
            "arena_bytes", "Shared memory: in use, free but kept, and the limit.", memory, "kind"
        ),
        gauge(
            "loop_longest_callback_seconds",
            "Time that the slowest callback of the event loop took.",
            longest_callback,
        ),
    ]


def journal_metrics(journal: Journal) -> list[Metric]:
    """Return the metrics; the last commit's time only if there was one."""
    statistics = journal.statistics
    metrics = [
        _counter("journal_commits", "Commits of the journal.", statistics.commits),
        _counter("journal_commit_failures", "Commits that failed.", statistics.failures),
        _counter("journal_commit_seconds", "Time that commits took.", statistics.seconds),
        gauge(
            "journal_longest_commit_seconds", "Time that the slowest commit took.",
            statistics.longest,
        ),
        gauge(
            "journal_failing", "1 while the journal can't be written; durable jobs are refused.",
            float(journal.failure is not None),
        ),
        _counter(
            "journal_dropped_jobs",
            "Ended jobs missing from history, since the journal couldn't be written.",
            journal.dropped,
        ),
    ]  # fmt: skip
    if statistics.last_at is not None:
        help = "When the last commit was on disk."
        metrics.append(gauge("journal_last_commit_timestamp_seconds", help, statistics.last_at))
    return metrics


def _state(job: Job) -> tuple[str, ...]:
    if isinstance(job.state, Running):
        return "running", ""
    reason = job.state.reason if isinstance(job.state, Queued) else ""
    word = reason.split(maxsplit=1)[0] if reason else "resources"
    return "queued", word if word in REASONS else "other"
