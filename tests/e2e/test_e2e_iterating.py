"""Iterative jobs from end to end: real device processes, files, deaths, cancellation, devices."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cores import needs_two_cores
from diffusing_workload import DiffusionParams, diffused

import hetsched
from hetsched.config import parse
from hetsched.errors import DataError, JobFailed, Unavailable, UsageError
from hetsched.job import JobReport

DIFFUSION, DEADLY = "diffusing_workload:Diffusion", "deadly_diffusion:DeadlyDiffusion"
HERE = Path(__file__).parent
ROWS, COLUMNS = 60, 4
pytestmark = needs_two_cores
CORES = """
[[device]]
kind = "cpu"
count = 2
hardware_threads = true
"""
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
MACHINES = {"cores": CORES, "mixed": CORES + EMULATED, "virtual": VIRTUAL}


@pytest.fixture(scope="module", params=MACHINES)
def local(request: pytest.FixtureRequest) -> Iterator[hetsched.Local]:
    with _machine(request.param) as local:
        yield local


@pytest.fixture(scope="module")
def cores() -> Iterator[hetsched.Local]:
    with _machine("cores") as local:
        yield local


def _machine(name: str) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", f"{HERE.parent}:{HERE}")
        return hetsched.Local(parse(MACHINES[name], "test"), learn=False)


def made(seed: int = 0, dtype: str = "float64") -> np.ndarray:
    values = np.random.default_rng(seed).standard_normal((ROWS, COLUMNS))
    return values.astype(dtype)


def report_of(job: Any) -> JobReport:
    report = job.report
    assert isinstance(report, JobReport)
    return report


def expected(x: np.ndarray, **params: Any) -> np.ndarray:
    result, _ = diffused(DiffusionParams(rows=ROWS, columns=COLUMNS, **params), x)
    return result


@pytest.mark.parametrize("splits", ["none", "auto"])
def test_runs_with_the_same_split_agree_in_each_bit(cores: hetsched.Local, splits: str) -> None:
    results = []
    for _ in range(2):
        job = cores.submit(DIFFUSION, made(), rows=ROWS, iterations=9, balance=splits)
        results.append(np.array(job.result(60).y))
    if splits == "none":
        assert np.array_equal(*results)
    np.testing.assert_allclose(*results)


def test_iterations_end_when_the_method_has_converged(local: hetsched.Local) -> None:
    x, tolerance = made(), 0.05
    job = local.submit(DIFFUSION, x, rows=ROWS, iterations=400, tolerance=tolerance)
    _, iterations = diffused(
        DiffusionParams(rows=ROWS, columns=COLUMNS, iterations=400, tolerance=tolerance), x
    )
    job.result(60)
    report = report_of(job)
    assert (report.iterations, report.converged) == (iterations, True)
    assert report.residual is not None
    assert report.residual <= tolerance


def test_bad_data_end_the_job_on_all_devices(local: hetsched.Local) -> None:
    with pytest.raises(DataError, match="row 0 is bad data"):
        local.submit(DIFFUSION, made(), rows=ROWS, is_bad=True).result(60)
    job = local.submit(DIFFUSION, made(), rows=ROWS, iterations=2)
    np.testing.assert_allclose(job.result(60).y, expected(made(), iterations=2))


# ---- files


@pytest.mark.parametrize(("dtype", "order"), [("float64", "C"), ("<f4", "C"), (">f8", "F")])
def test_inputs_and_outputs_may_be_files(
    cores: hetsched.Local, tmp_path: Path, dtype: str, order: str
) -> None:
    x = np.asarray(made(dtype=dtype), order=order)  # type: ignore[call-overload]
    np.save(tmp_path / "x.npy", x)
    path = tmp_path / "y.npy"
    job = cores.submit(DIFFUSION, tmp_path / "x.npy", out={"y": path}, rows=ROWS, iterations=4)
    job.result(60)
    np.testing.assert_allclose(np.load(path), expected(x.astype("float64"), iterations=4))


def test_all_memory_is_returned(cores: hetsched.Local, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", made())

    def used() -> int:
        out = {name: tmp_path / f"{name}.npy" for name in ("y", "totals")}
        params: dict[str, Any] = {"rows": ROWS, "iterations": 4, "force": True, "out": out}
        cores.submit(DIFFUSION, tmp_path / "x.npy", **params).result(60)
        with pytest.raises(JobFailed, match="no convergence"):
            cores.submit(DIFFUSION, made(), rows=ROWS, iterations=3, tolerance=1e-9).result(60)
        gc.collect()
        return int(cores._call(lambda: cores._arena.used))

    assert used() == used()


# ---- deaths, cancellation


def deadly(folder: Path, *calls: int) -> dict[str, Any]:
    return {"rows": ROWS, "iterations": 40, "markers": str(folder), "calls": list(calls)}


@pytest.mark.parametrize(("machine", "calls"), [("cores", (5, 6, 20)), ("mixed", (9,))])
def test_a_process_that_dies_costs_one_iteration(
    machine: str, calls: tuple[int, ...], tmp_path: Path
) -> None:
    x = made()
    with _machine(machine) as local:
        job = local.submit(DEADLY, x, **deadly(tmp_path, *calls))
        np.testing.assert_allclose(job.result(60).y, expected(x, iterations=40))
    report = report_of(job)
    assert report.iterations == 40
    assert sum("the iteration was repeated" in note for note in report.notes) == len(calls)


# ---- devices


def test_one_device_may_do_it_alone(local: hetsched.Local) -> None:
    name = local.devices()[0][0].name
    job = local.submit(DIFFUSION, made(), rows=ROWS, iterations=5, devices=name)
    np.testing.assert_allclose(job.result(60).y, expected(made(), iterations=5))
    assert [device.device for device in report_of(job).devices] == [name]


def test_a_faster_device_gets_more_rows() -> None:
    with _machine("virtual") as local:
        job = local.submit(DIFFUSION, made(), rows=ROWS, iterations=20)
        job.result(60)
        rows = {device.device: device.share for device in report_of(job).devices}
        assert rows == {"slow0": 15, "fast0": 45}

        job = local.submit(DIFFUSION, made(), rows=ROWS, iterations=20)
        job.result(60)
        report = report_of(job)
        assert report.moves == 0, "the models of the first job give the split of the second"
        assert {device.device: device.share for device in report.devices} == rows


def test_without_an_enabled_device_no_job_runs(cores: hetsched.Local) -> None:
    names = [info.name for info in cores.devices()[0]]
    cores.switch_devices(disable=names)
    for workload, params in [(DIFFUSION, {}), ("fft", {"batch": "2x8x8"})]:
        with pytest.raises(Unavailable, match="cpu0: disabled"):
            cores.submit(workload, **params).result(60)
    assert cores.devices()[1]["cpu0"].startswith("disabled")
    cores.switch_devices(enable=names)
    cores.submit(DIFFUSION, iterations=2).result(60)


def test_explicit_measurements_are_refused(cores: hetsched.Local) -> None:
    spec = hetsched.job.JobSpec(
        workload=DIFFUSION, params={"rows": ROWS}, measure={"cpu0": "numpy"}
    )
    with pytest.raises(UsageError, match="diffusion is iterative: its devices are measured"):
        cores.run(spec)
