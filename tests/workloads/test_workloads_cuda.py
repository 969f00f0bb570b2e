from __future__ import annotations

import gc
import importlib
import sys
import weakref
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from fft_cases import FFT, normal, params, residual
from hetsched_workloads.matrix_update import MatrixParams, MatrixUpdate, on_gpu
from solver_cases import CHOLESKY, PCG, poisson, splits
from toy_cupy import Toy

from hetsched.errors import JobFailed
from hetsched.iterations import serial
from hetsched.workload import Iterative, KernelContext, Rows, StageCall, Values, Variant, find

FFT_FILE = "hetsched_workloads.fft.cupy_cuda"
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
MATRIX = MatrixUpdate()


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> Iterator[Toy]:
    made = Toy()
    for file in (FFT_FILE, PCG_FILE):
        monkeypatch.delitem(sys.modules, file, raising=False)
    for name, module in made.modules().items():
        monkeypatch.setitem(sys.modules, name, module)
    yield made
    for file in (FFT_FILE, PCG_FILE):
        sys.modules.pop(file, None)


def make(batch: str, allocate: Any = None, **options: str) -> Any:
    p = params(batch, **options)
    context = KernelContext("cuda", 1, "", np, allocate)
    return importlib.import_module(FFT_FILE).make(p, p.count, context)


@pytest.mark.parametrize("direction", ["forward", "inverse", "roundtrip"])
@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_a_chunk_is_transformed_in_place_by_one_plan_of_its_size(
    toy: Toy, dtype: str, direction: str
) -> None:
    p = params("7x8x12", dtype, direction)
    x = normal(p)
    slot = x.copy()
    make("13x8x12", dtype=dtype, direction=direction)({"x": slot}, {"y": slot})
    assert toy.runs == ([7, 7] if direction == "roundtrip" else [7])
    assert residual(p, x, slot).max() < 0.5


def test_plans_are_made_once_for_each_size_and_share_the_work_area_of_the_place(toy: Toy) -> None:
    asked: list[int] = []
    kernel = make("13x8x12", lambda size: asked.append(size) or object())
    slot = normal(params("13x8x12"))
    for size in (13, 6, 13, 6):
        kernel({"x": slot[:size]}, {"y": slot[:size]})
    assert toy.plans == [((8, 12), "C2C", batch) for batch in (13, 6)]
    assert (asked, toy.areas) == ([13 * 8 * 12 * 8], [])


def test_of_very_many_sizes_the_oldest_plans_make_room(toy: Toy) -> None:
    p = params("40x2x3")
    kernel, x = make("40x2x3"), normal(p)
    for size in (*range(1, 40), 39, 1):
        slot = x.copy()
        kernel({"x": slot[:size]}, {"y": slot[:size]})
        assert residual(p, x[:size], slot[:size]).max() < 0.5
    assert len(toy.plans) == 1 + 39 + 1


def test_plans_of_a_shape_are_kept_until_a_job_of_another(toy: Toy) -> None:
    kernels = [make(batch) for batch in ("4x8x8", "3x8x8", "4x8x8", "4x8x16", "4x8x8")]
    kernels += [make("4x8x8", dtype="complex128"), make("4x8x8")]
    assert len(kernels) == 7
    assert [batch for *_, batch in toy.plans] == [4, 3, 4, 4, 4, 4]


def test_plans_and_their_work_area_go_with_the_last_kernel_that_uses_them(toy: Toy) -> None:
    area = Toy()
    gone, areas = weakref.ref(area), [area]
    kernel = make("4x8x8", lambda size: areas.pop())
    del area
    assert gone() is not None
    del kernel
    gc.collect()
    assert gone() is None


def test_one_call_has_no_more_points_than_cufft_can_count(toy: Toy) -> None:
    make("4096x1024x1024")
    assert max(batch for *_, batch in toy.plans) * 1024**2 < 2**31


class OnDevice(np.ndarray):
    """An array with CuPy's `data.ptr`."""

    @property
    def data(self) -> Any:
        return SimpleNamespace(ptr=self.__array_interface__["data"][0])


def matrices(p: MatrixParams) -> dict[str, np.ndarray]:
    shapes = {"C": (p.rows, p.cols), "A": (p.rows, p.inner), "B": (p.inner, p.cols)}
    inputs = {name: np.empty(shape, p.dtype) for name, shape in shapes.items()}
    for name, array in inputs.items():
        MATRIX.generate(p, 1, name, 0, array)
    return inputs


def test_a_matrix_update_is_one_call_in_place(toy: Toy) -> None:
    p = MatrixParams(5, 7, 3)
    inputs = matrices(p)
    c = inputs["C"].copy().view(OnDevice)
    on_gpu(p, 5, KernelContext("cuda", 1, "", np))({**inputs, "C": c}, {"C": c})
    assert toy.gemms == 1
    assert MATRIX.residual(p, inputs, {"C": c.view(np.ndarray)}, 1).max() < 0.5


def on_cuda(workload: Any) -> Iterative:
    """The workload with its CUDA kernels where the serial reference expects those of the CPU."""
    file = PCG_FILE if workload.name == "pcg" else f"hetsched_workloads.{workload.name}.kernels"
    context = KernelContext("cuda", xp=sys.modules["cupy"])

    class OnCuda(type(workload)):  # type: ignore[misc]
        def variants(self, kind: str) -> Sequence[Variant]:
            make = importlib.import_module(file).make
            return (Variant("cupy", "1", lambda p, load, _: make(p, load, context)),)

    return OnCuda()  # type: ignore[no-any-return]


@pytest.mark.filterwarnings("ignore:divide by zero")  # CuPy doesn't warn
@pytest.mark.parametrize(("name", "values"), CASES)
def test_cuda_kernels_give_the_results_of_the_cores(
    name: str, values: dict[str, Any], toy: Toy
) -> None:
    workload: Any = find(name)
    p = workload.infer(values, {})
    load = workload.load(p)
    split = splits(load, workload.granule(p))["uneven" if name == "kmeans" else "moving"]

    on_gpu = serial.run(on_cuda(workload), p, {}, split)

    on_cores = serial.run(workload, p, {}, (load,))
    assert abs(on_gpu.iterations - on_cores.iterations) <= (name == "pcg")
    limit = 1e-5 if name == "pcg" else ROUNDING * np.finfo(p.dtype).eps
    for array, expected in on_cores.outputs.items():
        assert np.abs(on_gpu.outputs[array] - expected).max() <= limit * np.abs(expected).max()


@pytest.mark.filterwarnings("ignore:divide by zero")  # CuPy doesn't warn
def test_clusters_do_not_depend_on_the_size_of_blocks(
    toy: Toy, monkeypatch: pytest.MonkeyPatch
) -> None:
    workload: Any = find("kmeans")
    p = workload.infer({"count": 400, "dimensions": 5, "clusters": 6}, {})
    whole = serial.run(on_cuda(workload), p, {}, (400,))
    module = importlib.import_module("hetsched_workloads.kmeans.kernels")
    monkeypatch.setattr(module, "GPU_BLOCK_BYTES", 1 << 10)

    blocks = serial.run(on_cuda(workload), p, {}, (400,))

    np.testing.assert_array_equal(blocks.outputs["labels"], whole.outputs["labels"])
    centroids, limit = whole.outputs["centroids"], ROUNDING * np.finfo("float32").eps
    assert np.abs(blocks.outputs["centroids"] - centroids).max() <= limit * centroids.max()


def test_more_nonzeros_than_indices_can_count_are_refused(
    toy: Toy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.import_module(PCG_FILE), "MAX_INDEX", 1000)
    p = PCG.infer({"grid": "6x7x8"}, {})

    with pytest.raises(JobFailed, match="use more devices, or --devices cpu"):
        serial.run(on_cuda(PCG), p, {}, (p.n,))


@pytest.fixture
def cupy() -> Any:
    """CuPy with a device, or skip with the reason."""
    cupy = pytest.importorskip("cupy", reason="CuPy isn't installed")
    try:
        cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        pytest.skip(f"no CUDA device: {error}")
    return cupy


@pytest.mark.gpu
@pytest.mark.parametrize("direction", ["forward", "inverse", "roundtrip"])
@pytest.mark.parametrize("batch", ["7x64x64", "5x500x500", "3x127x31", "37x16x16"])
@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_cufft_agrees_with_the_reference(
    cupy: Any, dtype: str, batch: str, direction: str
) -> None:
    p = params(batch, dtype, direction)
    x = normal(p)
    slot = cupy.asarray(x)
    (variant,) = FFT.variants("cuda")
    kernel = variant.make(p, p.count, KernelContext("cuda", 1, "", cupy))
    with cupy.cuda.Stream(non_blocking=True) as stream:
        kernel({"x": slot}, {"y": slot})
        stream.synchronize()
    assert residual(p, x, cupy.asnumpy(slot)).max() < 0.5


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_cublas_agrees_with_the_reference(cupy: Any, dtype: str) -> None:
    p = MatrixParams(100, 300, 64, dtype)
    inputs = matrices(p)
    there = {name: cupy.asarray(array) for name, array in inputs.items()}
    (variant,) = MATRIX.variants("cuda")
    variant.make(p, 100, KernelContext("cuda", 1, "", cupy))(there, {"C": there["C"]})
    assert MATRIX.residual(p, inputs, {"C": cupy.asnumpy(there["C"])}, 1).max() < 0.5


@pytest.mark.gpu
@pytest.mark.parametrize("preconditioner", ["none", "diagonal", CHOLESKY])
def test_pcg_on_a_gpu_gives_the_result_of_the_cores(cupy: Any, preconditioner: Any) -> None:
    p = PCG.infer({"grid": "10x10x10", "preconditioner": preconditioner}, {})
    kernels = importlib.import_module(PCG_FILE).make(p, p.n, KernelContext("cuda", xp=cupy))
    a, b = poisson("10x10x10")
    arrays = {"A.data": a.data, "A.indices": a.indices, "A.indptr": a.indptr, "direction": b}
    inputs = {name: cupy.asarray(array) for name, array in arrays.items()}
    y, partials = cupy.empty(p.n), {"pq": np.zeros(-(-p.n // PCG.granule(p)))}

    call = StageCall(Rows(0, p.n, p.n), inputs, {"product": y}, Values(), partials)
    kernels["multiply"](call)

    np.testing.assert_allclose(cupy.asnumpy(y), a @ b, atol=1e-12)
    assert partials["pq"].sum() == pytest.approx(b @ (a @ b))
