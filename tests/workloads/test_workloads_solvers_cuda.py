"""The CUDA kernels of the solvers on a stand-in for CuPy, and on a GPU where there is one."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from hetsched_workloads.jacobi import Jacobi, JacobiParams, kernels
from hetsched_workloads.pcg import Pcg, PcgParams
from solver_cases import CHOLESKY, poisson, splits

from hetsched.errors import JobFailed
from hetsched.iterations import serial
from hetsched.workload import KernelContext, Variant

FILE = "hetsched_workloads.pcg.cupy_cuda"


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """NumPy under CuPy's name, but not the module itself."""
    fake, sparse = ModuleType("cupy"), ModuleType("cupyx.scipy.sparse")
    fake.__dict__.update({name: getattr(np, name) for name in dir(np) if name[:1] != "_"})
    fake.__dict__["asnumpy"] = np.array
    del fake.__dict__["vecdot"], fake.__dict__["repeat"]
    sparse.__dict__["csr_matrix"] = scipy.sparse.csr_matrix
    modules = {"cupy": fake, "cupyx": ModuleType("cupyx"), "cupyx.scipy": ModuleType("scipy")}
    modules["cupyx.scipy.sparse.linalg"] = scipy.sparse.linalg
    for name, module in {**modules, "cupyx.scipy.sparse": sparse}.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.delitem(sys.modules, FILE, raising=False)
    yield
    sys.modules.pop(FILE, None)


class CudaJacobi(Jacobi):
    """Its CUDA kernels, where the serial reference expects those of the CPU."""

    def variants(self, kind: str) -> Sequence[Variant]:
        context = KernelContext("cuda", xp=sys.modules["cupy"])
        return (Variant("cupy", "1", lambda p, load, _: kernels.make(p, load, context)),)


class CudaPcg(Pcg):
    """Likewise."""

    def variants(self, kind: str) -> Sequence[Variant]:
        return (Variant("cupy", "1", importlib.import_module(FILE).make),)


@pytest.mark.usefixtures("cupy")
@pytest.mark.parametrize("split", ["whole", "uneven", "moving"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_jacobi_agrees_with_the_cores(dtype: str, split: str) -> None:
    p = JacobiParams(90, dtype)
    rows = splits(90, Jacobi().granule(p))[split]

    result = serial.run(CudaJacobi(), p, {}, rows)

    expected = serial.run(Jacobi(), p, {}, (90,))
    assert result.iterations == expected.iterations
    tolerance = 1e-5 if dtype == "float32" else 1e-13
    np.testing.assert_allclose(result.outputs["x"], expected.outputs["x"], rtol=tolerance)


@pytest.mark.usefixtures("cupy")
@pytest.mark.parametrize("split", ["whole", "uneven", "moving"])
@pytest.mark.parametrize("preconditioner", ["none", "diagonal", CHOLESKY])
def test_pcg_agrees_with_the_cores(preconditioner: Any, split: str) -> None:
    p: PcgParams = Pcg().infer({"grid": "6x7x8", "preconditioner": preconditioner}, {})
    rows = splits(p.n, Pcg().granule(p))[split]

    result = serial.run(CudaPcg(), p, {}, rows)

    expected = serial.run(Pcg(), p, {}, (p.n,))
    assert abs(result.iterations - expected.iterations) <= 1
    np.testing.assert_allclose(result.outputs["x"], expected.outputs["x"], atol=1e-7)


@pytest.mark.usefixtures("cupy")
def test_more_nonzeros_than_indices_can_count_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    module = importlib.import_module(FILE)
    monkeypatch.setattr(module, "MAX_INDEX", 1000)
    p: PcgParams = Pcg().infer({"grid": "6x7x8"}, {})

    with pytest.raises(JobFailed, match="use more devices, or --devices cpu"):
        serial.run(CudaPcg(), p, {}, (p.n,))


@pytest.mark.gpu
@pytest.mark.parametrize("preconditioner", ["none", "diagonal", CHOLESKY])
def test_products_on_a_gpu_agree_with_those_of_the_cores(preconditioner: Any) -> None:
    real = pytest.importorskip("cupy", reason="CuPy isn't installed")
    try:
        real.cuda.runtime.getDeviceCount()
    except real.cuda.runtime.CUDARuntimeError as error:
        pytest.skip(f"no CUDA device: {error}")
    backend = importlib.import_module(FILE).CupyBackend(125)
    a, b = poisson("10x10x10")
    arrays = {"A.data": a.data, "A.indices": a.indices, "A.indptr": a.indptr}
    inputs = {name: real.asarray(array) for name, array in arrays.items()}
    y, z = real.empty(1000), real.empty(1000)

    backend.multiply(serial.Rows(0, 1000, 1000), inputs, real.asarray(b), y)
    backend.precondition(serial.Rows(0, 1000, 1000), inputs, real.asarray(b), z)

    np.testing.assert_allclose(real.asnumpy(y), a @ b, atol=1e-12)
    assert float(real.linalg.norm(z)) > 0
