"""Counters and histograms of jobs that have ended. Pure.

Bounded: labels are devices, phases, states and exit codes, never anything that a client chooses.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from hetsched.daemon.metrics.histogram import Histogram
from hetsched.errors import Cancelled
from hetsched.job import Done, Failed, JobReport
from hetsched.transport.inspection.metric_records import Metric, labelled

SECONDS = (0.001, 0.01, 0.1, 1.0, 10.0, 100.0, 1000.0)
RATIOS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0)


@dataclass(slots=True)
class DeviceTotals:
    """Of one device: seconds of each phase, units, late phases."""

    h2d: float = 0.0
    compute: float = 0.0
    d2h: float = 0.0
    units: int = 0
    late: int = 0


class JobMetrics:
    """Totals since the daemon's start."""

    def __init__(self) -> None:
        self._ended: Counter[tuple[str, ...]] = Counter()
        self._refused: Counter[tuple[str, ...]] = Counter()
        self._devices: dict[str, DeviceTotals] = {}
        self._queue = Histogram(
            "hetsched_job_queue_seconds", "Time from submission to start.", SECONDS
        )
        self._run = Histogram(
            "hetsched_job_run_seconds",
            "Time from the first chunk's start to the last's end.",
            SECONDS,
        )
        self._total = Histogram(
            "hetsched_job_total_seconds", "Time from submission to the end.", SECONDS
        )
        self._error = Histogram(
            "hetsched_job_prediction_error_ratio",
            "Absolute error of predicted run times, relative to the measured ones.",
            RATIOS,
        )
        self._spread = Histogram(
            "hetsched_job_spread_ratio", "Relative difference of the devices' times.", RATIOS
        )

    @property
    def ended(self) -> int:
        """Return the number of jobs that have ended."""
        return self._ended.total()

    def on_refused(self, code: int) -> None:
        """Count a submission that was refused, by its exit code."""
        self._refused[(str(code),)] += 1

    def on_end(self, state: Done | Failed, queued: float | None, total: float) -> None:
        """Count a job that has ended.

        Parameters
        ----------
        queued : float or None, seconds
            From submission to start; None: it never started.
        total : float, seconds
            From submission to the end.
        """
        code = state.error.code if isinstance(state, Failed) else 0
        word = {0: "done", Cancelled.code: "cancelled"}.get(code, "failed")
        self._ended[(word, str(code))] += 1
        if queued is not None:
            self._queue.observe(max(0.0, queued))
        self._total.observe(max(0.0, total))
        self._observe_report(state.report)

    def metrics(self) -> list[Metric]:
        return [
            labelled(
                "hetsched_jobs_ended", "counter", "Jobs that have ended.", dict(self._ended),
                "state", "code",
            ),
            labelled(
                "hetsched_submissions_refused", "counter", "Refused submissions, by exit code.",
                dict(self._refused), "code",
            ),
            self._queue.metric(),
            self._run.metric(),
            self._total.metric(),
            *self._device_metrics(),
            self._error.metric(),
            self._spread.metric(),
        ]  # fmt: skip

    def _device_metrics(self) -> list[Metric]:
        phases: dict[tuple[str, ...], float] = {}
        for name, totals in self._devices.items():
            phases[(name, "h2d")] = totals.h2d
            phases[(name, "compute")] = totals.compute
            phases[(name, "d2h")] = totals.d2h
        return [
            labelled(
                "hetsched_device_phase_seconds", "counter",
                "Time that devices spent copying in (h2d), computing and copying out (d2h).",
                phases, "device", "phase",
            ),
            labelled(
                "hetsched_device_units", "counter", "Units that devices have computed.",
                {(name,): totals.units for name, totals in self._devices.items()}, "device",
            ),
            labelled(
                "hetsched_device_late_phases", "counter",
                "Phases of emulated devices that took longer than modelled.",
                {(name,): t.late for name, t in self._devices.items() if t.late}, "device",
            ),
        ]  # fmt: skip

    def _observe_report(self, report: JobReport) -> None:
        if report.seconds is not None:
            self._run.observe(report.seconds)
            if report.predicted_seconds is not None and report.seconds > 0:
                self._error.observe(abs(report.predicted_seconds / report.seconds - 1))
        if report.spread is not None:
            self._spread.observe(report.spread)
        for device in report.devices:
            totals = self._devices.get(device.device)
            if totals is None:
                totals = self._devices[device.device] = DeviceTotals()
            totals.h2d += device.copy_in_seconds
            totals.compute += device.compute_seconds
            totals.d2h += device.copy_out_seconds
            totals.units += device.share
            totals.late += device.late
