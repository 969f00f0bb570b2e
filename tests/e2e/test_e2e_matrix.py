"""C := C + A B with the whole engine and named arrays."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import hetsched


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
