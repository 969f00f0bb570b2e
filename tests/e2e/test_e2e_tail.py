"""Jobs whose cores share a tail, in real processes: irregular units, a death, files, a cancel."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from concurrent.futures import CancelledError
from pathlib import Path
from queue import SimpleQueue

import numpy as np
import pytest
from cores import needs_two_cores
from irregular_workload import WIDTH, costs

from hetsched.config import parse
from hetsched.job import JobReport, JobState, Running
from hetsched.local import Local
from hetsched.planner import chunks

CORES = """
[[device]]
kind = "cpu"
count = 2
hardware_threads = true
team = false
"""
UNITS = 160
FRACTION = 0.4

pytestmark = needs_two_cores


@pytest.fixture
def local(monkeypatch: pytest.MonkeyPatch) -> Iterator[Local]:
    """An engine that pools so much as soon as the cores are measured, however fast they are."""
    monkeypatch.setattr(chunks, "POOLED_FRACTION", FRACTION)
    monkeypatch.setattr(chunks, "MIN_TAKE_SECONDS", 0.0)
    monkeypatch.setattr(chunks, "CALLS_PER_TAKE", 0)
    monkeypatch.setattr(chunks, "MIN_TIME_RATIO", 0.0)
    with Local(parse(CORES, "test"), learn=False) as engine:
        yield engine


def input_of(local: Local, seed: int) -> np.ndarray:
    x = local.empty((UNITS,), "float64")
    x[...] = costs(seed, 0, UNITS)
    return x


def run(local: Local, seed: int, rounds: int = 2) -> JobReport:
    job = local.submit(
        "irregular_workload:Irregular", input_of(local, seed), verify=True, units=UNITS,
        rounds=rounds,
    )  # fmt: skip
    job.result(timeout=60)
    assert job.report is not None
    return job.report


def test_irregular_units_are_shared_and_every_one_is_right(local: Local) -> None:
    for seed in range(3):
        report = run(local, seed)
        assert report.verified
        assert sum(device.share for device in report.devices) == UNITS

    explanation = local.explain(report.job)

    assert sum(device.pooled for device in explanation.devices) == pytest.approx(
        FRACTION * UNITS, abs=2
    )
    taken = sum(device.taken for device in explanation.devices)
    assert taken == sum(device.pooled for device in explanation.devices)
    assert "take the last" in str(explanation)


def test_a_death_during_the_job_costs_no_unit(local: Local) -> None:
    run(local, 1)
    states: SimpleQueue[JobState] = SimpleQueue()
    job = local.submit(
        "irregular_workload:Irregular", input_of(local, 2), units=UNITS, rounds=40,
        follow=states.put,
    )  # fmt: skip
    while not (
        isinstance(state := states.get(timeout=60), Running) and state.stage == "computing"
    ):
        pass
    os.kill(local.pids()["cpu0"], signal.SIGKILL)

    y = np.asarray(job.result(timeout=60))

    assert y.shape == (UNITS, WIDTH)
    expected = np.sqrt(1.0 + np.ceil(40 * costs(2, 0, UNITS)))
    np.testing.assert_allclose(y[:, 0], expected)
    assert job.report is not None
    assert sum(device.share for device in job.report.devices) == UNITS


def test_a_cancelled_job_stops_taking(local: Local) -> None:
    run(local, 1)

    def follow(state: JobState) -> None:
        if isinstance(state, Running) and state.stage == "computing":
            local.cancel(state.job)

    job = local.submit(
        "irregular_workload:Irregular", input_of(local, 2), units=UNITS, rounds=200,
        follow=follow,
    )  # fmt: skip
    with pytest.raises(CancelledError):
        job.result(timeout=60)
    assert run(local, 3).verified


def test_the_tail_of_a_job_with_files_is_written_too(local: Local, tmp_path: Path) -> None:
    source, target = tmp_path / "cost.npy", tmp_path / "y.npy"
    for seed in range(3):
        np.save(source, costs(seed, 0, UNITS))
        local.submit(
            "irregular_workload:Irregular", source, out=target, units=UNITS, rounds=2, verify=True
        ).result(timeout=60)
        expected = np.sqrt(1.0 + np.ceil(2 * costs(seed, 0, UNITS)))
        np.testing.assert_allclose(np.load(target)[:, -1], expected)
        target.unlink()
