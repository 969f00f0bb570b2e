"""Jobs that may use little of a device's memory, among others that may use all of it."""

from __future__ import annotations

import pytest
from virtual_machine import VIRTUAL

import hetsched
from hetsched.config import parse

LITTLE = 48 << 10
MACHINE = parse(VIRTUAL.replace('compute = { gap = "40us"', 'compute = { gap = "400us"'), "test")


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
    with hetsched.Local(MACHINE, learn=False) as local:
        local.submit("fft", batch="256x32x32").result()
        errors(local, 4, None)
        limited = errors(local, 4, LITTLE)
        free = errors(local, 2, None)

    assert limited == pytest.approx([0.0] * 4, abs=0.02)
    assert free == pytest.approx([0.0] * 2, abs=0.02)
