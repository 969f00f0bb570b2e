"""Conjugate gradients in compiled loops: against SciPy's and NumPy's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from solver_cases import PCG, parts, pcg, poisson, positive, splits

from hetsched.workload import KernelContext

pytest.importorskip("numba")

from hetsched_workloads.pcg import numba_cpu, scipy_cpu

PRECONDITIONERS = ("none", "diagonal", "cholesky")


@pytest.fixture
def compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiled loops for small systems too."""
    monkeypatch.setattr(numba_cpu, "is_large", lambda p: True)


def system(case: str) -> tuple[Any, np.ndarray]:
    if case == "poisson":
        return poisson("9x10x11")
    a = positive(500, 3, 0.03)
    return a, np.random.default_rng(0).standard_normal(500)


@pytest.mark.usefixtures("compiles")
@pytest.mark.parametrize("case", ["poisson", "random"])
@pytest.mark.parametrize("preconditioner", PRECONDITIONERS)
def test_it_computes_what_scipy_computes(preconditioner: str, case: str) -> None:
    a, b = system(case)
    options = {"preconditioner": preconditioner, "tolerance": 1e-10}

    result = pcg(a, b, variant="numba", **options)

    expected = pcg(a, b, variant="scipy", **options)
    assert abs(result.iterations - expected.iterations) <= 1
    np.testing.assert_allclose(result.residuals[:9], expected.residuals[:9], rtol=1e-8)
    size = np.abs(expected.outputs["x"]).max()
    np.testing.assert_allclose(result.outputs["x"], expected.outputs["x"], atol=1e-8 * size)


@pytest.mark.usefixtures("compiles")
@pytest.mark.parametrize("preconditioner", PRECONDITIONERS)
def test_no_bit_depends_on_the_split(preconditioner: str) -> None:
    a, b = poisson("9x10x11")
    options = {"preconditioner": preconditioner, "block": 70}
    whole = pcg(a, b, variant="numba", **options)

    assert whole.converged
    for split in splits(990, 70).values():
        result = pcg(a, b, split, "numba", **options)
        assert result.residuals == whole.residuals
        np.testing.assert_array_equal(result.outputs["x"], whole.outputs["x"])


@pytest.mark.usefixtures("compiles")
@pytest.mark.parametrize("preconditioner", ["diagonal", "cholesky"])
def test_single_precision_and_wide_indices(preconditioner: str) -> None:
    a, b = poisson("7x8x9", "float32")
    wide = {name: part.astype(int) for name, part in parts(a).items()}
    matrix = {**wide, "A.data": a.data}

    result = pcg(matrix, b, (252, 252), "numba", preconditioner=preconditioner, block=63)

    expected = pcg(a, b, variant="scipy", preconditioner=preconditioner, block=63)
    assert abs(result.iterations - expected.iterations) <= 1
    assert result.outputs["x"].dtype == np.float32
    size = np.abs(expected.outputs["x"]).max()
    np.testing.assert_allclose(result.outputs["x"], expected.outputs["x"], atol=1e-5 * size)


def test_small_systems_are_left_to_scipy(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    monkeypatch.setattr(scipy_cpu, "make", lambda p, load, context: made.append(p.n) or {})
    context = KernelContext("cpu", xp=np)

    numba_cpu.make(PCG.infer({"grid": "9x9x9"}, {}), 729, context)

    assert made == [729]
    assert numba_cpu.is_large(PCG.infer({"grid": "100x100x100"}, {}))
