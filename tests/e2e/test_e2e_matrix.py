"""C := C + A B with the whole engine and named arrays."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import hetsched
from hetsched.errors import HetschedError


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[hetsched.Local]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        with hetsched.Local("cpu-only", learn=False) as local:
            yield local


def operands(dtype: str, rows: int = 96, cols: int = 70, inner: int = 50) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    shapes = {"C": (rows, cols), "A": (rows, inner), "B": (inner, cols)}
    return {name: rng.standard_normal(shape).astype(dtype) for name, shape in shapes.items()}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_an_update_of_arrays_by_name_is_right_and_verified(
    local: hetsched.Local, dtype: str
) -> None:
    arrays = operands(dtype)
    expected = arrays["C"].astype("float64") + arrays["A"].astype("float64") @ arrays["B"]

    job = local.submit("matrix_update", arrays, verify=True)
    c = job.result(timeout=60)

    assert c.dtype == dtype
    assert np.abs(c - expected).max() < (1e-4 if dtype == "float32" else 1e-12)
    assert job.report is not None
    assert job.report.verified is True


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_an_update_that_cancels_passes_verification(local: hetsched.Local, dtype: str) -> None:
    for rows, cols, inner in ((40, 30, 20), (5, 200, 300), (1, 1, 1)):
        arrays = operands(dtype, rows, cols, inner)
        arrays["C"] = -arrays["A"] @ arrays["B"]

        job = local.submit("matrix_update", arrays, verify=True)
        job.result(timeout=60)

        assert job.report is not None
        assert job.report.verified is True


def test_an_update_by_a_matrix_that_is_not_finite_passes_verification(
    local: hetsched.Local,
) -> None:
    arrays = operands("float32")
    arrays["B"][3, 4] = np.inf

    c = local.submit("matrix_update", arrays, verify=True).result(timeout=60)

    assert not np.isfinite(c).all(axis=1).any()


def test_a_generated_update_is_verified(local: hetsched.Local) -> None:
    job = local.submit("matrix_update", rows=50, cols=30, inner=20, verify=True)

    job.result(timeout=60)

    assert job.report is not None
    assert job.report.verified is True


def test_an_array_without_a_name_is_refused_with_the_names(local: hetsched.Local) -> None:
    with pytest.raises(HetschedError, match="C"):
        local.submit("matrix_update", operands("float32")["C"]).result(timeout=60)


def test_the_command_takes_all_three_files_by_name(tmp_path: Path) -> None:
    arrays, output = operands("float64"), tmp_path / "new.npy"
    command = [sys.executable, "-m", "hetsched.cli.main", "run", "matrix_update", "--verify"]
    for name, array in arrays.items():
        np.save(tmp_path / f"{name}.npy", array)
        command += ["--input", f"{name}={tmp_path / name}.npy"]
    environment = {
        "PATH": "/usr/bin:/bin", "HETSCHED_STATE_DIR": str(tmp_path),
        "XDG_CACHE_HOME": str(tmp_path),
    }  # fmt: skip

    ended = subprocess.run(
        [*command, "--output", str(output)],
        env=environment, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip

    assert ended.returncode == 0, ended.stderr
    np.testing.assert_allclose(
        np.load(output), arrays["C"] + arrays["A"] @ arrays["B"], atol=1e-12
    )
