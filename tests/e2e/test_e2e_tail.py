"""Jobs whose cores share a tail, in real processes: irregular units, a death, files, a cancel."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from irregular_workload import costs
from served import CORES, computes, needs_two_cores

import hetsched
from hetsched.config import parse

IRREGULAR = "irregular_workload:Irregular"
UNITS, ROUNDS = 160, 40
pytestmark = [needs_two_cores, pytest.mark.usefixtures("plug_ins")]


@pytest.fixture(scope="module")
def measured(plug_ins: None) -> Iterator[hetsched.Local]:
    with hetsched.Local(parse(CORES, "test"), learn=False) as local:
        for seed in range(3):
            assert submit(local, seed, verify=True).result(60).shape[0] == UNITS
        yield local


def submit(local: hetsched.Local, seed: int, **options: Any) -> hetsched.Job:
    x = costs(seed, 0, UNITS)
    return local.submit(IRREGULAR, x, **{"units": UNITS, "rounds": ROUNDS, **options})


def right(y: np.ndarray, seed: int) -> bool:
    expected = np.sqrt(1.0 + np.ceil(ROUNDS * costs(seed, 0, UNITS)))
    return bool(np.allclose(y[:, 0], expected) and np.allclose(y[:, -1], expected))


def test_irregular_units_are_shared_and_every_one_is_right(measured: hetsched.Local) -> None:
    for seed in range(3, 8):  # no tail is left if a busy machine made one core look far slower
        job = submit(measured, seed)
        assert right(job.result(60), seed)
        explanation = job.explain()
        if pooled := sum(device.pooled for device in explanation.devices):
            break
    assert 0 < pooled < UNITS
    assert sum(device.taken for device in explanation.devices) == pooled
    assert "take the last" in str(explanation)


def test_a_death_during_the_job_costs_no_unit(measured: hetsched.Local) -> None:
    job = submit(measured, 4)
    computes(job)
    os.kill(measured.pids()["cpu0"], signal.SIGKILL)
    assert right(job.result(60), 4)
    assert job.report is not None
    assert sum(device.share for device in job.report.devices) == UNITS


def test_a_cancelled_job_stops_taking(measured: hetsched.Local) -> None:
    job = submit(measured, 5, rounds=400)
    computes(job)
    job.cancel()
    with pytest.raises(CancelledError):
        job.result(60)
    assert right(submit(measured, 5).result(60), 5)


def test_the_tail_of_a_job_with_files_is_written_too(
    measured: hetsched.Local, tmp_path: Path
) -> None:
    np.save(tmp_path / "x.npy", costs(6, 0, UNITS))
    files = tmp_path / "x.npy", tmp_path / "y.npy"
    measured.submit(IRREGULAR, files[0], out=files[1], units=UNITS, rounds=ROUNDS).result(60)
    assert right(np.load(files[1]), 6)
