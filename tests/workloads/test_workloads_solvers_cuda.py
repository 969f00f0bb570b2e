from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from solver_cases import CHOLESKY, PCG, poisson, splits

from hetsched.errors import JobFailed
from hetsched.iterations import serial
from hetsched.workload import Iterative, KernelContext, Rows, StageCall, Values, Variant, find

PCG_FILE = "hetsched_workloads.pcg.cupy_cuda"
CASES = [
    ("jacobi", {"n": 90, "dtype": "float32"}),
    ("jacobi", {"n": 90}),
    ("pcg", {"grid": "6x7x8", "preconditioner": "none"}),
    ("pcg", {"grid": "6x7x8", "tolerance": 1e-9}),
    pytest.param("pcg", {"grid": "6x7x8", "preconditioner": "cholesky"}, marks=CHOLESKY.marks),
    ("kmeans", {"count": 400, "dimensions": 5, "clusters": 6, "dtype": "float64"}),
    ("kmeans", {"count": 400, "dimensions": 5, "clusters": 6}),
    ("kmeans", {"count": 100, "dimensions": 2, "clusters": 6, "start": "given"}),
    ("heat", {"grid": "12x9", "steps": 20, "border": "dirichlet,neumann", "tolerance": 1e-9}),
    ("heat", {"grid": "6x5x4", "steps": 20, "dtype": "float64"}),
]
ROUNDING = 16
"""Of the dtype's precision, relative to the largest value: others may be nearly zero."""


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
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
    monkeypatch.delitem(sys.modules, PCG_FILE, raising=False)
    yield fake
    sys.modules.pop(PCG_FILE, None)


def on_cuda(workload: Any, cupy: ModuleType) -> Iterative:
    """The workload with its CUDA kernels where the serial reference expects those of the CPU."""
    file = PCG_FILE if workload.name == "pcg" else f"hetsched_workloads.{workload.name}.kernels"
    context = KernelContext("cuda", xp=cupy)

    class OnCuda(type(workload)):  # type: ignore[misc]
        def variants(self, kind: str) -> Sequence[Variant]:
            make = importlib.import_module(file).make
            return (Variant("cupy", "1", lambda p, load, _: make(p, load, context)),)

    return OnCuda()  # type: ignore[no-any-return]


@pytest.mark.filterwarnings("ignore:divide by zero")  # CuPy doesn't warn
@pytest.mark.parametrize(("name", "values"), CASES)
def test_cuda_kernels_give_the_results_of_the_cores(
    name: str, values: dict[str, Any], cupy: ModuleType
) -> None:
    workload: Any = find(name)
    p = workload.infer(values, {})
    load = workload.load(p)
    split = splits(load, workload.granule(p))["uneven" if name == "kmeans" else "moving"]

    on_gpu = serial.run(on_cuda(workload, cupy), p, {}, split)

    on_cores = serial.run(workload, p, {}, (load,))
    assert abs(on_gpu.iterations - on_cores.iterations) <= (name == "pcg")
    limit = 1e-5 if name == "pcg" else ROUNDING * np.finfo(p.dtype).eps
    for array, expected in on_cores.outputs.items():
        assert np.abs(on_gpu.outputs[array] - expected).max() <= limit * np.abs(expected).max()


@pytest.mark.filterwarnings("ignore:divide by zero")  # CuPy doesn't warn
def test_clusters_do_not_depend_on_the_size_of_blocks(
    cupy: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    workload: Any = find("kmeans")
    p = workload.infer({"count": 400, "dimensions": 5, "clusters": 6}, {})
    whole = serial.run(on_cuda(workload, cupy), p, {}, (400,))
    module = importlib.import_module("hetsched_workloads.kmeans.kernels")
    monkeypatch.setattr(module, "GPU_BLOCK_BYTES", 1 << 10)

    blocks = serial.run(on_cuda(workload, cupy), p, {}, (400,))

    np.testing.assert_array_equal(blocks.outputs["labels"], whole.outputs["labels"])
    centroids, limit = whole.outputs["centroids"], ROUNDING * np.finfo("float32").eps
    assert np.abs(blocks.outputs["centroids"] - centroids).max() <= limit * centroids.max()


def test_more_nonzeros_than_indices_can_count_are_refused(
    cupy: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.import_module(PCG_FILE), "MAX_INDEX", 1000)
    p = PCG.infer({"grid": "6x7x8"}, {})

    with pytest.raises(JobFailed, match="use more devices, or --devices cpu"):
        serial.run(on_cuda(PCG, cupy), p, {}, (p.n,))


@pytest.mark.gpu
@pytest.mark.parametrize("preconditioner", ["none", "diagonal", CHOLESKY])
def test_pcg_on_a_gpu_gives_the_result_of_the_cores(preconditioner: Any) -> None:
    real = pytest.importorskip("cupy", reason="CuPy isn't installed")
    try:
        real.cuda.runtime.getDeviceCount()
    except real.cuda.runtime.CUDARuntimeError as error:
        pytest.skip(f"no CUDA device: {error}")
    p = PCG.infer({"grid": "10x10x10", "preconditioner": preconditioner}, {})
    kernels = importlib.import_module(PCG_FILE).make(p, p.n, KernelContext("cuda", xp=real))
    a, b = poisson("10x10x10")
    arrays = {"A.data": a.data, "A.indices": a.indices, "A.indptr": a.indptr, "direction": b}
    inputs = {name: real.asarray(array) for name, array in arrays.items()}
    y, partials = real.empty(p.n), {"pq": np.zeros(-(-p.n // PCG.granule(p)))}

    call = StageCall(Rows(0, p.n, p.n), inputs, {"product": y}, Values(), partials)
    kernels["multiply"](call)

    np.testing.assert_allclose(real.asnumpy(y), a @ b, atol=1e-12)
    assert partials["pq"].sum() == pytest.approx(b @ (a @ b))
