"""A core team: measured, used for loads with too few units for all cores, killed, restarted."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cores import needs_two_cores

import hetsched
from hetsched.config import parse
from hetsched.engine.processes.fleet import Fleet
from hetsched.errors import UsageError
from hetsched.job import JobReport, JobSpec

HERE = Path(__file__).parent
WORKLOAD = "odd_threads:OddThreads"
CORES = parse('[[device]]\nkind = "cpu"\nhardware_threads = true\n', "test")

pytestmark = needs_two_cores


@pytest.fixture(scope="module")
def local() -> Iterator[hetsched.Local]:
    """An engine that has measured single cores and the team."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(HERE))
        with hetsched.Local(CORES, learn=False) as local:
            assert "team0" not in local._call(local._engine.pids)
            names = [info.name for info in local.devices()[0] if not info.members]
            for devices in [names] * 3 + [["team0"]] * 3:
                measure(local, devices)
            yield local


def measure(local: hetsched.Local, devices: list[str]) -> None:
    """One unit on each of `devices`."""
    spec = JobSpec(
        workload=WORKLOAD,
        params={"units": len(devices)},
        devices=tuple(devices),
        measure=dict.fromkeys(devices, "spin"),
    )
    local.run(spec).result(timeout=60)


def submit(local: hetsched.Local, units: int, **options: object) -> tuple[np.ndarray, JobReport]:
    x = np.arange(4.0 * units).reshape(units, 4)
    job = local.submit(WORKLOAD, x, units=units, verify=True, **options)
    y = job.result(timeout=60)
    np.testing.assert_array_equal(y, 2 * x)
    assert job.report is not None
    return y, job.report


def devices_with_share(report: JobReport) -> list[str]:
    return [device.device for device in report.devices if device.share]


def test_a_single_unit_is_computed_by_the_team(local: hetsched.Local) -> None:
    _, report = submit(local, 1)

    assert devices_with_share(report) == ["team0"]
    assert report.predicted_seconds is not None
    assert any(note.startswith("cpu0: no share, team0 finishes sooner") for note in report.notes)


def test_a_team_has_its_cores_and_as_many_threads(local: hetsched.Local, tmp_path: Path) -> None:
    log, cores = tmp_path / "log", len(os.sched_getaffinity(0))

    submit(local, 1, devices=["team"], log=str(log))

    line = f"{cores} threads on {cores} cores, BLAS has {cores}"
    assert log.read_text().splitlines() == [line]


def test_single_cores_can_be_requested(local: hetsched.Local) -> None:
    _, report = submit(local, 2, devices=["cpu0", "cpu1"])

    assert devices_with_share(report) == ["cpu0", "cpu1"]


def test_a_team_that_dies_comes_back_and_the_result_is_right(
    local: hetsched.Local, tmp_path: Path
) -> None:
    before = local._call(local._engine.pids)["team0"]

    _, report = submit(local, 3, devices=["team0"], marker=str(tmp_path / "died"))

    assert devices_with_share(report) == ["team0"]
    assert local._call(local._engine.pids)["team0"] != before


def test_a_team_is_not_measured_beside_its_cores(local: hetsched.Local) -> None:
    with pytest.raises(UsageError, match="team0 can't be measured together with its own cores"):
        measure(local, ["cpu0", "team0"])


def test_a_job_whose_team_never_starts_is_cancelled_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(HERE))
    spawn, start_requested = Fleet._spawn, threading.Event()

    def spawning(self: Fleet, member: Any) -> None:
        if member.spec.lazy:
            start_requested.set()
        else:
            spawn(self, member)

    monkeypatch.setattr(Fleet, "_spawn", spawning)
    with hetsched.Local(CORES, learn=False) as local:
        job = local.submit(WORKLOAD, np.ones((1, 4)), units=1, devices=["team0"])
        assert start_requested.wait(60)
        job.cancel()

        try:
            with pytest.raises(CancelledError):
                job.result(timeout=60)
        finally:
            local.abandon()  # `close` would wait for the job
