"""Iterative jobs on cores, beside a GPU, and on machines whose times are computed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from served import CORES, needs_two_cores
from toys import diffused

import hetsched
from hetsched.config import parse

DIFFUSION = "toys:Diffusion"
ROWS = 60
X = np.random.default_rng(0).standard_normal((ROWS, 4))
EMULATED = """
[[device]]
kind = "emulated"
name = "emu0"
clock = "real"
memory = "1MiB"
compute = { gap = "20us", unit = "1us" }
h2d = { gap = "5us", rate = "1GB/s" }
d2h = { gap = "5us", rate = "1GB/s" }
"""
VIRTUAL = """
[[device]]
kind = "emulated"
name = "slow0"
clock = "virtual"
compute = { unit = "3us" }
[[device]]
kind = "emulated"
name = "fast0"
clock = "virtual"
compute = { unit = "1us" }
"""
LOST_GPU = (
    EMULATED.replace("1GB/s", "1MB/s")
    + """
[[device]]
kind = "cpu"
count = 1
team = false
"""
)
"""A GPU that can save its rows only now and then."""
pytestmark = [needs_two_cores, pytest.mark.usefixtures("plug_ins")]


def run(local: hetsched.Local, **options: Any) -> Any:
    job = local.submit(DIFFUSION, X, **{"rows": ROWS, "iterations": 20, **options})
    job.result(60)
    assert job.report is not None
    return job


@pytest.fixture(scope="module", params=[CORES, CORES + EMULATED, VIRTUAL])
def machine(request: pytest.FixtureRequest, plug_ins: None) -> Iterator[hetsched.Local]:
    with hetsched.Local(parse(request.param, "test"), learn=False) as local:
        yield local


def test_runs_with_the_same_split_agree_in_each_bit(machine: hetsched.Local) -> None:
    first, second = (np.array(run(machine, balance="none").result().y) for _ in range(2))
    assert np.array_equal(first, second)
    np.testing.assert_allclose(first, diffused(X, 20))


def test_iterations_end_when_the_method_has_converged(machine: hetsched.Local) -> None:
    job = run(machine, iterations=400, tolerance=0.05)
    report = job.report
    assert report.converged and 1 < report.iterations < 400 and report.residual <= 0.05
    before = diffused(X, report.iterations - 1)
    np.testing.assert_allclose(job.result().y, diffused(before, 1))
    assert np.abs(diffused(before, 1) - before).max() <= 0.05
    assert np.abs(before - diffused(X, report.iterations - 2)).max() > 0.05


def test_bad_data_end_the_job_on_all_devices(machine: hetsched.Local) -> None:
    with pytest.raises(hetsched.HetschedError, match="row 0 is bad data"):
        run(machine, is_bad=True)
    np.testing.assert_allclose(run(machine).result().y, diffused(X, 20))


def test_one_device_may_do_it_alone(machine: hetsched.Local) -> None:
    name = machine.devices()[0][0].name
    job = run(machine, devices=name)
    np.testing.assert_allclose(job.result().y, diffused(X, 20))
    assert [device.device for device in job.report.devices] == [name]


@pytest.mark.parametrize(("dtype", "order"), [("float64", "C"), ("<f4", "C"), (">f8", "F")])
def test_inputs_and_outputs_may_be_files(
    local: hetsched.Local, tmp_path: Path, dtype: str, order: Any
) -> None:
    np.save(tmp_path / "x.npy", np.asarray(X.astype(dtype), order=order))
    out = {"y": tmp_path / "y.npy"}
    local.submit(DIFFUSION, tmp_path / "x.npy", out=out, rows=ROWS, iterations=4).result(60)
    np.testing.assert_allclose(np.load(out["y"]), diffused(X.astype(dtype), 4))


def test_a_faster_device_gets_more_rows_from_the_start_once_that_is_known() -> None:
    with hetsched.Local(parse(VIRTUAL, "test"), learn=False) as local:
        for moves in (1, 0):
            report = run(local).report
            shares = {device.device: device.share for device in report.devices}
            assert shares == {"slow0": 15, "fast0": 45}
            assert (report.moves > 0) == bool(moves)


def test_rows_that_only_a_lost_gpu_had_are_computed_again(tmp_path: Path) -> None:
    with hetsched.Local(parse(LOST_GPU, "test"), learn=False) as local:
        options = {"die_at": 150, "marker": str(tmp_path / "died"), "balance": "none"}
        job = run(local, iterations=300, **options)
    assert (tmp_path / "died").exists()
    np.testing.assert_allclose(job.result().y, diffused(X, 300), atol=1e-12)
    lost = [note for note in job.report.notes if note.endswith("were lost and repeated")]
    for note in lost:  # none if the rows after iteration 149 had just been saved
        first, last = map(int, re.findall(r"\d+", note))
        assert 149 - 300 // 50 <= first <= last == 149
    assert len(lost) <= 1
