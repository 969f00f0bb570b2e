"""Whole jobs on real cores, from arrays and files: right, and verified."""

from __future__ import annotations

import functools
import itertools
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io
import scipy.sparse
import wrong_fft
from hetsched_workloads.heat import Heat, HeatParams
from hetsched_workloads.kmeans import KMeans, KMeansParams
from hypothesis import settings

import hetsched
from hetsched.errors import DataError, HetschedError, JobFailed
from hetsched.iterations import serial

RNG = np.random.default_rng(1)
FIELD = RNG.standard_normal((40, 30))
PHOTOGRAPHS = Path(__file__).parents[2] / "examples" / "photographs.py"
run = functools.partial(serial.run, variant="numpy")
SIZES = ("5x64x64", "3x127x31", "9x1x97", "2x256x256", "7x100x60", "4x509x13", "1x1x1", "40x8x8")


def verified(job: Any) -> Any:
    result = job.result(timeout=60)
    assert job.report.verified is True
    return result


# ---- verification


@pytest.mark.parametrize("fault", [*wrong_fft.FAULTS, "left_out"])
def test_every_fault_is_caught(local: hetsched.Local, fault: str) -> None:
    for draw in range(settings().max_examples // 4):
        job = local.submit(
            "wrong_fft:WrongFft", batch="64x32x32", dtype=("complex64", "complex128")[draw % 2],
            fault=fault, draw=draw, seed=draw, verify=True,
        )  # fmt: skip
        with pytest.raises(JobFailed, match="verification failed"):
            job.result(timeout=60)
        assert job.report is not None and job.report.verified is False


def test_without_verify_a_fault_passes(local: hetsched.Local) -> None:
    job = local.submit("wrong_fft:WrongFft", batch="64x32x32", fault="zeroed")
    job.result(timeout=60)
    assert job.report is not None and job.report.verified is None


def test_right_spectra_pass(local: hetsched.Local) -> None:
    dtypes, directions = ("complex64", "complex128"), ("forward", "inverse", "roundtrip")
    for seed, case in enumerate(itertools.product(SIZES, dtypes, directions)):
        params = dict(zip(("batch", "dtype", "direction"), case, strict=True))
        verified(local.submit("fft", seed=seed, verify=True, **params))
    for value in (1, 3.7, -1e9, 1e-12):
        verified(local.submit("fft", np.full((8, 100, 100), value, "complex64"), verify=True))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(96, 70, 50), (40, 30, 20), (5, 200, 300), (1, 1, 1)])
def test_right_products_pass_even_if_they_cancel(
    local: hetsched.Local, dtype: str, shape: tuple[int, int, int]
) -> None:
    m, n, k = shape
    a, b = RNG.standard_normal((m, k)).astype(dtype), RNG.standard_normal((k, n)).astype(dtype)
    c = verified(local.submit("matrix_update", {"C": -a @ b, "A": a, "B": b}, verify=True))
    assert c.dtype == dtype
    assert np.abs(c).max() < (1e-3 if dtype == "float32" else 1e-11)
    b[0, 0] = np.inf
    c = verified(local.submit("matrix_update", {"C": 0 * c, "A": a, "B": b}, verify=True))
    assert not np.isfinite(c[:, 0]).any()


def test_spectra_of_photographs_are_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("skimage", reason="the photographs come with scikit-image")
    monkeypatch.setenv("HETSCHED_STATE_DIR", str(tmp_path / "state"))
    planes, _ = runpy.run_path(str(PHOTOGRAPHS))["photographs"]()
    assert len({plane.tobytes() for plane in planes}) == len(planes) >= 64
    planes = planes[::4]
    np.save(tmp_path / "x.npy", planes)
    with hetsched.Local("emulated-gpu") as local:
        verified(local.submit("fft", tmp_path / "x.npy", out=tmp_path / "y.npy", verify=True))
    for plane, spectrum in zip(planes, np.load(tmp_path / "y.npy"), strict=True):
        expected = np.fft.fft2(plane.astype("complex128"))
        error, magnitudes = np.abs(spectrum - expected).max(), np.sort(np.abs(expected).ravel())
        assert error < 2e-3 * np.sqrt(np.mean(magnitudes[:-1] ** 2))  # their means are huge


# ---- variants

ODD = "odd_workloads:OddVariants"


def test_a_variant_that_cannot_be_made_is_skipped(local: hetsched.Local) -> None:
    x = np.arange(80.0).reshape(20, 4)
    job = local.submit(ODD, x, units=20, verify=True)
    assert np.array_equal(verified(job), 2 * x + 1)
    assert job.report is not None
    assert {device.variant for device in job.report.devices if device.share} == {"sound"}


def test_without_any_variant_only_jobs_with_these_parameters_fail(local: hetsched.Local) -> None:
    with pytest.raises(HetschedError, match=r"no working variant of odd.*bound to another"):
        local.submit(ODD, units=19, sound=False).result(timeout=60)
    assert verified(local.submit(ODD, units=19, verify=True)).shape == (19, 4)


# ---- solvers


def test_points_are_clustered_as_by_one_process(local: hetsched.Local) -> None:
    p, points = KMeansParams(3000, 4, 5, dtype="float64"), np.empty((3000, 4))
    KMeans().generate(p, 1, "points", 0, points)
    result = verified(local.submit("kmeans", {"points": points}, clusters=5, verify=True))
    expected = run(KMeans(), p, {"points": points}, (3000,))
    assert result.iterations == expected.iterations
    np.testing.assert_allclose(result["centroids"], expected.outputs["centroids"], rtol=1e-10)
    assert np.array_equal(result["labels"], expected.outputs["labels"])


def heated(steps: int) -> np.ndarray:
    p = HeatParams("40x30", steps, dtype="float64")
    return np.asarray(run(Heat(), p, {"initial": FIELD}, (40,)).outputs["final"])


def test_results_outlive_later_jobs_and_may_be_their_inputs(local: hetsched.Local) -> None:
    steps = (5, 6, 7)
    results = [
        local.submit("heat", {"initial": FIELD}, steps=n).result(timeout=60)["final"]
        for n in steps
    ]
    for n, final in zip(steps, results, strict=True):
        assert np.array_equal(final, heated(n))
    final = local.submit("heat", {"initial": results[0]}, steps=5).result(timeout=60)["final"]
    assert np.array_equal(final, heated(10))


def test_sparse_matrices_may_be_files_and_of_integers(
    local: hetsched.Local, tmp_path: Path
) -> None:
    a = scipy.sparse.diags_array([-1.0, 4.0, -1.0], offsets=[-1, 0, 1], shape=(40, 40)).tocsr()
    b = RNG.standard_normal(40)
    scipy.io.mmwrite(tmp_path / "a.mtx", a, symmetry="symmetric", precision=17)
    np.savez(tmp_path / "b.npz", b)
    files = {"A": tmp_path / "a.mtx", "b": tmp_path / "b.npz"}
    from_files = local.submit("pcg", files, out=tmp_path / "x.npy", balance="none").result(60)
    from_memory = local.submit("pcg", {"A": a.tocsc(), "b": b}, balance="none").result(60)
    assert np.array_equal(np.load(from_files.x), from_memory.x)
    np.testing.assert_allclose(a @ from_memory.x, b, atol=1e-4)
    integers = {"A": a.astype("int16"), "b": np.ones(40, ">i4")}
    np.testing.assert_allclose(a @ local.submit("pcg", integers).result(60).x, 1, atol=1e-4)


@pytest.mark.parametrize(
    ("name", "arrays", "params", "message"),
    [
        ("kmeans", {"points": np.diag([1, np.nan, 1])}, {"clusters": 2}, "row 1 has a NaN"),
        ("kmeans", {"points": np.zeros((3, 2))}, {"clusters": 4}, "only 3 points"),
        ("heat", {"initial": np.full((9, 2), np.inf)}, {}, "infinite"),
    ],
)
def test_bad_data_get_a_clear_line(
    local: hetsched.Local, name: str, arrays: Any, params: dict[str, Any], message: str
) -> None:
    with pytest.raises(DataError, match=message):
        local.submit(name, arrays, **params).result(timeout=60)
