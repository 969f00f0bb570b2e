"""A core team: measured, used for loads with too few units for all cores, killed, restarted."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from served import needs_two_cores

import hetsched
from hetsched.config import parse
from hetsched.errors import UsageError
from hetsched.job import JobReport, JobSpec

WORKLOAD = "odd_workloads:OddThreads"
CORES = '[[device]]\nkind = "cpu"\nhardware_threads = true\n'
pytestmark = [needs_two_cores, pytest.mark.usefixtures("plug_ins")]


@pytest.fixture(scope="module")
def teams(plug_ins: None) -> Iterator[hetsched.Local]:
    """An engine that has measured single cores and the team."""
    with hetsched.Local(parse(CORES, "test"), learn=False) as local:
        assert "team0" not in local.pids()
        names = [info.name for info in local.devices()[0] if not info.members]
        for devices in [names] * 3 + [["team0"]] * 3:
            measure(local, devices)
        yield local


def measure(local: hetsched.Local, devices: list[str]) -> None:
    """One unit on each of `devices`."""
    spec = JobSpec(
        workload=WORKLOAD, params={"units": len(devices)}, devices=tuple(devices),
        measure=dict.fromkeys(devices, "spin"),
    )  # fmt: skip
    local.run(spec).result(timeout=60)


def run(local: hetsched.Local, units: int, **options: Any) -> JobReport:
    x = np.arange(4.0 * units).reshape(units, 4)
    job = local.submit(WORKLOAD, x, units=units, verify=True, **options)
    np.testing.assert_array_equal(job.result(timeout=60), 2 * x + 1)
    assert job.report is not None
    return job.report


def devices_of(report: JobReport) -> list[str]:
    return [device.device for device in report.devices if device.share]


def test_a_single_unit_is_computed_by_the_team(teams: hetsched.Local) -> None:
    report = run(teams, 1)
    assert devices_of(report) == ["team0"]
    assert any(note.startswith("cpu0: no share, team0 finishes sooner") for note in report.notes)


def test_a_team_has_its_cores_and_as_many_threads(teams: hetsched.Local, tmp_path: Path) -> None:
    log, cores = tmp_path / "log", len(os.sched_getaffinity(0))
    run(teams, 1, devices=["team"], log=str(log))
    assert log.read_text() == f"{cores} threads on {cores} cores, BLAS has {cores}\n"


def test_single_cores_can_be_requested(teams: hetsched.Local) -> None:
    assert devices_of(run(teams, 2, devices=["cpu0", "cpu1"])) == ["cpu0", "cpu1"]


def test_a_team_that_dies_comes_back_and_the_result_is_right(
    teams: hetsched.Local, tmp_path: Path
) -> None:
    before = teams.pids()["team0"]
    report = run(teams, 3, devices=["team0"], marker=str(tmp_path / "died"))
    assert devices_of(report) == ["team0"]
    assert teams.pids()["team0"] != before


def test_a_team_is_not_measured_beside_its_cores(teams: hetsched.Local) -> None:
    with pytest.raises(UsageError, match="team0 can't be measured together with its own cores"):
        measure(teams, ["cpu0", "team0"])
