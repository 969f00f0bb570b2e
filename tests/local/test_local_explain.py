"""Jobs explained and predicted, on devices whose clocks are computed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from virtual_machine import VIRTUAL

import hetsched
from hetsched.config import parse

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
