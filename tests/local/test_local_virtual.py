"""Jobs explained, predicted and scheduled, on devices whose clocks are computed."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from served import VIRTUAL

import hetsched
from hetsched.config import parse
from hetsched.errors import UsageError

MACHINE = parse(VIRTUAL, "test")
LITTLE = 48 << 10
SLOW_START = VIRTUAL.replace('compute = { gap = "40us"', 'compute = { gap = "400us"')


@pytest.fixture(scope="module")
def local() -> Iterator[hetsched.Local]:
    with hetsched.Local(MACHINE, learn=False) as local:
        yield local


@pytest.fixture(scope="module")
def jobs(local: hetsched.Local) -> list[Any]:
    """Three of a kind, one after the other."""
    jobs = []
    for _ in range(3):
        jobs.append(local.submit("fft", batch="64x32x32"))
        jobs[-1].result(60)
    return jobs


def test_the_explanation_agrees_with_the_report(jobs: list[Any]) -> None:
    for job in jobs:
        explanation, report = job.explain(), job.report
        assert (explanation.job, explanation.state, explanation.seconds) == (
            job.id,
            "done",
            report.seconds,
        )
        for device, reported in zip(explanation.devices, report.devices, strict=True):
            assert (device.device, device.share, device.seconds) == (
                reported.device,
                reported.share,
                reported.seconds,
            )
            assert device.measured.copy_in == pytest.approx(reported.copy_in_seconds)
            assert device.measured.compute == pytest.approx(reported.compute_seconds)
            assert device.measured.copy_out == pytest.approx(reported.copy_out_seconds)
            spent = device.time_breakdown
            total = spent.computing + spent.copying + spent.between + spent.before + spent.idle
            assert total == pytest.approx(report.seconds)


def test_timelines_begin_with_the_job(jobs: list[Any]) -> None:
    lines = jobs[-1].timeline()

    assert set(lines) == {"core0", "emu0"}
    for device in jobs[-1].report.devices:
        line = lines[device.device]
        assert tuple(chunk.units for chunk in line.chunks) == device.chunks
        first = line.chunks[0]
        assert (first.copy_in or first.compute)[0] == 0.0
        assert line.makespan == pytest.approx(device.seconds)


def errors(local: hetsched.Local, runs: int, limit: int | None) -> list[float]:
    """Relative errors of prediction, run by run."""
    relative_errors = []
    for _ in range(runs):
        job = local.submit("fft", batch="256x32x32", memory_limit=limit)
        job.result()
        report = job.report
        assert report is not None and report.seconds and report.predicted_seconds
        relative_errors.append(report.seconds / report.predicted_seconds - 1)
    return relative_errors


def test_a_limit_of_memory_does_not_spoil_predictions_with_it_or_without() -> None:
    with hetsched.Local(parse(SLOW_START, "test"), learn=False) as local:
        local.submit("fft", batch="256x32x32").result()
        errors(local, 4, None)
        limited = errors(local, 4, LITTLE)
        free = errors(local, 2, None)

    assert limited == pytest.approx([0.0] * 4, abs=0.02)
    assert free == pytest.approx([0.0] * 2, abs=0.02)


RUNS = 4


def run(local: hetsched.Local, schedule: str, **options: Any) -> Any:
    job = local.submit("fft", batch="96x32x32", schedule=schedule, verify=True, **options)
    job.result(60)
    return job


def chunks(job: Any) -> list[int]:
    (device,) = [each for each in job.report.devices if each.device == "emu0"]
    return [int(units) for units in device.chunks]


def is_halving(sizes: list[int]) -> bool:
    """Whether each chunk is half of what is left of a sub-distribution; these begin larger."""
    starts = [0, *(n for n in range(1, len(sizes)) if sizes[n] > sizes[n - 1]), len(sizes)]
    for start, stop in itertools.pairwise(starts):
        remaining = sum(sizes[start:stop])
        for size in sizes[start:stop]:
            if size != (remaining + 1) // 2:
                return False
            remaining -= size
    return True


@pytest.mark.parametrize("schedule", ["best", "ring", "multi-installment", "factoring"])
def test_each_schedule_is_obeyed_from_the_second_run_on_and_the_result_is_right(
    local: hetsched.Local, schedule: str
) -> None:
    jobs = [run(local, schedule, devices="emu0") for _ in range(RUNS)]

    assert all(job.report.verified for job in jobs)
    for job in jobs[1:]:
        explanation = job.explain()
        (device,) = explanation.devices
        assert explanation.schedule == schedule
        assert device.mode == ("ring" if schedule in ("best", "ring") else "installments")
        assert is_halving(chunks(job)) == (schedule == "factoring")
        others = {other.description: other.seconds for other in device.alternatives}
        assert set(others) == {"best", "multi-installment", "factoring"} - {
            "best" if schedule == "ring" else schedule
        }
        if schedule in ("multi-installment", "factoring"):
            assert f"{schedule}, as asked: " in str(explanation)
            assert others["best"] < device.predicted_seconds * (1 + 1e-6)


def test_schedules_have_plans_and_predictions_of_their_own(local: hetsched.Local) -> None:
    """Shares of one aren't evidence of what another one takes."""
    for _ in range(RUNS):
        factored, best = run(local, "factoring"), run(local, "best")

    assert is_halving(chunks(factored)) and not is_halving(chunks(best))
    for job in (factored, best):
        assert job.report.seconds == pytest.approx(job.report.predicted_seconds, rel=0.02)
    assert best.report.seconds < factored.report.seconds


def test_cores_copy_nothing_so_a_schedule_changes_nothing_there(local: hetsched.Local) -> None:
    job = run(local, "ring", devices="core0")

    assert any(
        note.startswith("schedule ring: changes nothing on core0") for note in job.report.notes
    )


def test_iterative_jobs_and_unknown_schedules_are_refused(local: hetsched.Local) -> None:
    with pytest.raises(UsageError, match="jacobi is iterative: its rows stay on the devices"):
        local.submit("jacobi", n=64, schedule="ring").result(60)
    with pytest.raises(UsageError, match="schedule: 'rong' should be one of best, ring"):
        local.submit("fft", np.zeros((4, 8, 8), "complex64"), schedule="rong")
