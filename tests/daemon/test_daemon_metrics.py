"""What is counted of jobs, as Prometheus reads it."""

from __future__ import annotations

from typing import Any

import daemon_harness
from msgspec.structs import replace
from prometheus_client.parser import text_string_to_metric_families

from hetsched.daemon.metrics import Metrics
from hetsched.errors import Cancelled, ErrorRecord
from hetsched.job import DeviceReport, Done, Failed, JobReport, JobSpec
from hetsched.jobs.table import JobRecord


def report(**fields: Any) -> JobReport:
    device = DeviceReport(
        device="cpu0",
        kind="cpu",
        variant="v",
        share=7,
        seconds=0.5,
        chunks=(),
        compute_seconds=0.5,
    )
    return replace(daemon_harness.report(1, "done"), devices=(device,), **fields)


def values(metrics: Metrics) -> dict[tuple[str, ...], float]:
    return {
        (sample.name.removeprefix("hetsched_"), *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(metrics.text())
        for sample in family.samples
    }


def test_jobs_count_by_their_end_and_exit_code() -> None:
    metrics = Metrics()
    spec = JobSpec(workload="fft", params={})
    started = JobRecord(1, spec, submitted_at=10.0, started_at=10.002, ended_at=10.6)
    metrics.on_end(started, Done(1, report(seconds=0.5, predicted_seconds=0.54)))
    waited = JobRecord(2, spec, submitted_at=10.0, ended_at=11.0)
    for code in (65, Cancelled.code):
        metrics.on_end(waited, Failed(2, report(), ErrorRecord(code, "no")))
    metrics.on_refused(75)

    found = values(metrics)
    assert metrics.ended == 3
    assert found["jobs_ended_total", "0", "done"] == 1
    assert found["jobs_ended_total", "65", "failed"] == 1
    assert found["jobs_ended_total", "130", "cancelled"] == 1
    assert found["submissions_refused_total", "75"] == 1
    assert found["job_queue_seconds_bucket", "0.01"] == found["job_queue_seconds_count",] == 1
    assert found["job_prediction_error_ratio_bucket", "0.1"] == 1
    assert found["device_units_total", "cpu0"] == 21
    assert found["device_phase_seconds_total", "cpu0", "compute"] == 1.5
    assert 0 < found["process_open_fds",] < found["process_max_fds",]
