"""The CUDA variants on a stand-in for CuPy, and on a GPU where there is one."""

from __future__ import annotations

import gc
import importlib
import sys
import weakref
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from fft_cases import FFT, normal, params, residual
from hetsched_workloads.matrix_update import MatrixParams, MatrixUpdate
from toy_cupy import Toy

from hetsched.workload import KernelContext

FILES = ("hetsched_workloads.fft.cupy_cuda", "hetsched_workloads.matrix_update.cupy_cuda")


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> Iterator[Toy]:
    made = Toy()
    for name in FILES:
        monkeypatch.delitem(sys.modules, name, raising=False)
    for name, module in made.modules().items():
        monkeypatch.setitem(sys.modules, name, module)
    yield made
    for name in FILES:
        sys.modules.pop(name, None)


def load(name: str) -> ModuleType:
    return importlib.import_module(name)


def context(allocate: Any = None) -> KernelContext:
    return KernelContext("cuda", 1, "", np, allocate)


@pytest.mark.parametrize("direction", ["forward", "inverse", "roundtrip"])
@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_a_chunk_is_transformed_in_place_by_one_plan_of_its_size(
    toy: Toy, dtype: str, direction: str
) -> None:
    p = params("7x8x12", dtype, direction)
    x = normal(p)
    slot = x.copy()
    load(FILES[0]).make(p, 13, context())({"x": slot}, {"y": slot})
    assert toy.runs == ([7, 7] if direction == "roundtrip" else [7])
    assert residual(p, x, slot).max() < 0.5


def test_plans_are_made_once_for_each_size_and_share_one_work_area(toy: Toy) -> None:
    p = params("13x8x12")
    kernel = load(FILES[0]).make(p, 13, context())
    slot = normal(p)
    for size in (13, 6, 13, 6):
        kernel({"x": slot[:size]}, {"y": slot[:size]})
    assert toy.plans == [((8, 12), "C2C", batch) for batch in (13, 6)]
    assert toy.areas == [13 * 8 * 12 * 8]


def test_of_very_many_sizes_the_oldest_plans_make_room(toy: Toy) -> None:
    p = params("40x2x3")
    module = load(FILES[0])
    kernel, x = module.make(p, 40, context()), normal(p)
    for size in (*range(1, 40), 39, 1):
        slot = x.copy()
        kernel({"x": slot[:size]}, {"y": slot[:size]})
        assert residual(p, x[:size], slot[:size]).max() < 0.5
    assert len(toy.plans) == 1 + 39 + 1


def test_the_work_area_is_asked_of_the_place(toy: Toy) -> None:
    asked: list[int] = []
    load(FILES[0]).make(params("4x8x8"), 4, context(lambda size: asked.append(size) or object()))
    assert asked == [4 * 8 * 8 * 8]
    assert toy.areas == []


def test_plans_of_a_shape_are_kept_for_the_next_job_and_only_missing_ones_added(toy: Toy) -> None:
    module = load(FILES[0])
    kernels = [module.make(params("4x8x8"), 4, context())]
    kernels += [module.make(params("3x8x8"), 3, context())]
    kernels += [module.make(params("4x8x8"), 4, context())]
    assert [batch for *_, batch in toy.plans] == [4, 3]


def test_plans_and_their_work_area_go_with_the_last_kernel_that_uses_them(toy: Toy) -> None:
    module = load(FILES[0])
    area = Toy()
    gone = weakref.ref(area)
    areas = [area]
    kernel = module.make(params("4x8x8"), 4, context(lambda size: areas.pop()))
    del area
    assert gone() is not None
    del kernel
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("other", [params("4x8x16"), params("4x8x8", "complex128")])
def test_plans_of_another_shape_or_dtype_replace_them(toy: Toy, other: Any) -> None:
    module = load(FILES[0])
    jobs = (params("4x8x8"), other, params("4x8x8"))
    kernels = [module.make(p, 4, context()) for p in jobs]
    assert len(kernels) == 3
    assert len(toy.plans) == 3


def test_plans_made_with_another_work_area_are_not_used(toy: Toy) -> None:
    module = load(FILES[0])
    for _ in range(2):
        area = SimpleNamespace()
        module.make(params("4x8x8"), 4, context(lambda size, area=area: area))
    assert len(toy.plans) == 2


def test_a_plan_refuses_any_other_number_of_planes(toy: Toy) -> None:
    module = load(FILES[0])
    plans = module.plan_set(module.PlanSetKey(0, 8, 8, "complex64", None))
    planes = np.zeros((4, 8, 8), np.complex64)
    with pytest.raises(ValueError, match="can't run on"):
        plans.run(planes, planes[:3], -1)
    assert toy.runs == []


def test_one_call_has_no_more_points_than_cufft_can_count(toy: Toy) -> None:
    p = params("4096x1024x1024")
    load(FILES[0]).make(p, 4096, context())
    assert max(batch for *_, batch in toy.plans) * 1024**2 < 2**31


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_matrix_update_is_one_call_in_place(toy: Toy, dtype: str) -> None:
    p = MatrixParams(5, 7, 3, dtype)
    inputs = {
        "C": np.ones((5, 7), dtype),
        "A": np.ones((5, 3), dtype),
        "B": np.ones((3, 7), dtype),
    }
    slot = inputs["C"].copy()

    class OnDevice(np.ndarray):
        """An array with CuPy's `data.ptr`."""

        @property
        def data(self) -> Any:
            return SimpleNamespace(ptr=self.__array_interface__["data"][0])

    c = slot.view(OnDevice)
    load(FILES[1]).make(p, 5, context())({**inputs, "C": c}, {"C": c})
    assert toy.gemms == 1
    assert MatrixUpdate().residual(p, inputs, {"C": slot}, 1).max() < 0.5


def test_without_cupy_there_is_no_cuda_variant() -> None:
    from hetsched_workloads import installed

    there = installed.version("cupy", *installed.CUPY) is not None
    assert bool(FFT.variants("cuda")) == bool(MatrixUpdate().variants("cuda")) == there
    assert all(v.in_place == {"y": "x"} for v in FFT.variants("cuda"))


def real_cupy() -> Any:
    """CuPy with a device, or skip with the reason."""
    cupy = pytest.importorskip("cupy", reason="CuPy isn't installed")
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        pytest.skip(f"no CUDA device: {error}")
    if not count:
        pytest.skip("no CUDA device")
    return cupy


@pytest.mark.gpu
@pytest.mark.parametrize("direction", ["forward", "inverse", "roundtrip"])
@pytest.mark.parametrize("batch", ["7x64x64", "5x500x500", "3x127x31", "37x16x16"])
@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_cufft_agrees_with_the_reference(dtype: str, batch: str, direction: str) -> None:
    cupy = real_cupy()
    p = params(batch, dtype, direction)
    x = normal(p)
    slot = cupy.asarray(x)
    (variant,) = FFT.variants("cuda")
    kernel = variant.make(p, FFT.load(p), KernelContext("cuda", 1, "", cupy))
    with cupy.cuda.Stream(non_blocking=True) as stream:
        kernel({"x": slot}, {"y": slot})
        stream.synchronize()
    assert residual(p, x, cupy.asnumpy(slot)).max() < 0.5


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_cublas_agrees_with_the_reference(dtype: str) -> None:
    cupy = real_cupy()
    p = MatrixParams(100, 300, 64, dtype)
    workload = MatrixUpdate()
    shapes = {"C": (100, 300), "A": (100, 64), "B": (64, 300)}
    inputs = {name: np.empty(shape, dtype) for name, shape in shapes.items()}
    for name, array in inputs.items():
        workload.generate(p, 1, name, 0, array)
    there = {name: cupy.asarray(array) for name, array in inputs.items()}
    (variant,) = workload.variants("cuda")
    variant.make(p, 100, KernelContext("cuda", 1, "", cupy))(there, {"C": there["C"]})
    assert workload.residual(p, inputs, {"C": cupy.asnumpy(there["C"])}, 1).max() < 0.5
