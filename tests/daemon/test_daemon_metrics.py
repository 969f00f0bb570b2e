"""Metrics: counted from events, with labels that no client can multiply."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched.daemon.metrics.histogram import Histogram
from hetsched.daemon.metrics.job_metrics import JobMetrics
from hetsched.daemon.metrics.process_gauges import process_metrics
from hetsched.errors import ErrorRecord
from hetsched.job import DeviceReport, Done, Failed, JobReport
from hetsched.transport.inspection.metric_records import Metric


def report(**changes: object) -> JobReport:
    return JobReport(job=1, state="done", workload="w", load=4, **changes)  # type: ignore[arg-type]


def values(metrics: list[Metric], name: str) -> dict[tuple[str, ...], float]:
    """Label values -> value of the samples named `name`, the suffix included."""
    return {
        tuple(sample.labels.values()): sample.value
        for metric in metrics
        for sample in metric.samples
        if metric.name + sample.suffix == name
    }


@given(st.lists(st.floats(0, 100), max_size=30))
def test_buckets_count_the_values_up_to_their_end(observed: list[float]) -> None:
    histogram = Histogram("h", "help", (0.5, 5.0, 50.0))
    for value in observed:
        histogram.observe(value)
    metric = histogram.metric()

    assert values([metric], "h_bucket") == {
        ("0.5",): sum(value <= 0.5 for value in observed),
        ("5",): sum(value <= 5.0 for value in observed),
        ("50",): sum(value <= 50.0 for value in observed),
        ("+Inf",): len(observed),
    }
    assert values([metric], "h_sum")[()] == pytest.approx(sum(observed))
    assert values([metric], "h_count")[()] == len(observed)


def test_ended_jobs_count_by_state_and_exit_code() -> None:
    metrics = JobMetrics()
    metrics.on_end(Done(1, report()), 0.2, 1.0)
    metrics.on_end(Failed(2, report(), ErrorRecord(130, "cancelled")), None, 0.5)
    metrics.on_end(Failed(3, report(), ErrorRecord(65, "no")), None, 0.5)

    assert values(metrics.metrics(), "hetsched_jobs_ended_total") == {
        ("done", "0"): 1,
        ("cancelled", "130"): 1,
        ("failed", "65"): 1,
    }
    assert values(metrics.metrics(), "hetsched_job_queue_seconds_count")[()] == 1
    assert values(metrics.metrics(), "hetsched_job_total_seconds_count")[()] == 3


def test_a_report_adds_phases_error_and_spread() -> None:
    device = DeviceReport(
        device="gpu0",
        kind="gpu",
        variant="v",
        share=4,
        seconds=2.0,
        chunks=(4,),
        copy_in_seconds=0.5,
        compute_seconds=1.0,
        copy_out_seconds=0.25,
        late=2,
    )
    metrics = JobMetrics()
    ended = report(seconds=2.0, predicted_seconds=1.5, spread=0.03, devices=(device,))
    for _ in range(2):
        metrics.on_end(Done(1, ended), 0.0, 2.0)

    assert values(metrics.metrics(), "hetsched_device_phase_seconds_total") == {
        ("gpu0", "h2d"): 1.0,
        ("gpu0", "compute"): 2.0,
        ("gpu0", "d2h"): 0.5,
    }
    assert values(metrics.metrics(), "hetsched_device_units_total") == {("gpu0",): 8}
    assert values(metrics.metrics(), "hetsched_device_late_phases_total") == {("gpu0",): 4}
    assert values(metrics.metrics(), "hetsched_job_prediction_error_ratio_sum")[()] == 0.5
    assert values(metrics.metrics(), "hetsched_job_spread_ratio_bucket")[("0.05",)] == 2


def test_the_process_knows_its_memory_and_descriptors() -> None:
    metrics = process_metrics(3.0)

    assert values(metrics, "hetsched_process_resident_bytes")[()] > 1 << 20
    open_now = values(metrics, "hetsched_process_descriptors")[()]
    assert 3 <= open_now <= values(metrics, "hetsched_process_descriptors_limit")[()]
