"""The OpenCL variants on the processor, by PoCL."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from fft_cases import FFT, normal, params, residual
from hetsched_workloads.matrix_update import MatrixParams, MatrixUpdate
from opencl_toys import open_runtime, processor

from hetsched.devices.accelerator.runtime import Copy
from hetsched.devices.opencl.device import OpenClRuntime
from hetsched.errors import UsageError
from hetsched.testing import check_workload
from hetsched.workload import KernelContext, Workload, find


@pytest.fixture(scope="module")
def runtime() -> OpenClRuntime:
    return open_runtime(processor())


MODULES = {"reikna": "reikna", "pyvkfft": "pyvkfft.opencl"}
"""The second one takes a compiler to install, and libOpenCL.so.1 to load."""


@pytest.fixture(params=MODULES)
def library(request: pytest.FixtureRequest) -> str:
    need(request.param)
    return str(request.param)


def need(variant: str) -> None:
    """Skip the test if the library of this variant can't be loaded."""
    try:
        importlib.import_module(MODULES.get(variant, "hetsched"))
    except (ImportError, OSError) as error:
        pytest.skip(f"{variant}: {error}")


def compute(
    runtime: OpenClRuntime,
    workload: Workload,
    p: Any,
    inputs: Mapping[str, np.ndarray],
    skip: int,
    library: str,
) -> np.ndarray:
    """Run the variant on arrays that begin at `skip` bytes; the output is like the first input."""
    variant = next(v for v in workload.variants("opencl") if v.name == library)
    kernel = variant.make(p, workload.load(p), KernelContext("opencl"))
    queue, start, there = runtime.queue(), skip, {}
    like = next(iter(inputs.values()))
    block = runtime.allocate(skip + sum(a.nbytes for a in inputs.values()) + like.nbytes)
    for name, array in inputs.items():
        queue.copy_in([Copy(block, start, array)], 1)
        there[name] = queue.array(block, start, array.shape, array.dtype.str)
        start += array.nbytes
    output = next(spec.name for spec in workload.arrays(p) if spec.is_output)
    target = queue.array(block, start, like.shape, like.dtype.str)

    queue.launch(lambda: kernel(there, {output: target}), len(like))
    result = np.empty_like(like)
    queue.copy_out([Copy(block, start, result)], 1)
    queue.finish()
    return result


@pytest.mark.parametrize("direction", ["forward", "inverse", "roundtrip"])
@pytest.mark.parametrize(("batch", "axes"), [("5x16", "-1"), ("3x6x8", "1"), ("3x4x6x8", "1,3")])
def test_units_are_transformed_along_some_axes(
    runtime: OpenClRuntime, batch: str, axes: str, direction: str, library: str
) -> None:
    values = {"batch": batch, "axes": axes, "direction": direction, "norm": "ortho"}
    p = FFT.infer(values, {})
    x = normal(p)

    y = compute(runtime, FFT, p, {"x": x}, 8, library)

    assert residual(p, x, y).max() < 0.5


IMAGES = {"rows": 12, "cols": 9}
CASES = (
    ("fft", {"batch": "7x12x10", "kind": "r2c"}),
    ("fft", {"batch": "5x8x9", "kind": "c2r", "dtype": "complex128"}),
    ("fft", {"batch": "5x8x2", "kind": "c2r", "norm": "ortho"}),
    ("fft", {"batch": "5x12x9", "kind": "r2c", "axes": "2,1", "norm": "ortho"}),
    ("fft", {"batch": "3x4x6x5", "kind": "c2r", "axes": "1,2", "norm": "forward"}),
    ("power_spectrum", {"count": 7, **IMAGES}),
    ("power_spectrum", {"count": 5, "rows": 1, "cols": 8, "dtype": "float64"}),
    ("convolve", {"count": 6, **IMAGES, "filters": 2, "filter_rows": 3, "filter_cols": 4}),
    ("convolve", {"count": 5, **IMAGES, "filters": 1, "filter_rows": 15, "filter_cols": 2,
                  "mode": "full"}),
    ("welch", {"channels": 6, "samples": 300, "nperseg": 64, "noverlap": 50}),
    ("welch", {"channels": 5, "samples": 70, "nperseg": 9, "detrend": "none", "dtype": "f64"}),
    ("matmul", {"count": 7, "rows": 19, "inner": 5, "cols": 6}),
    ("matmul", {"count": 5, "rows": 1, "inner": 500, "cols": 1, "dtype": "float64"}),
)  # fmt: skip


@pytest.mark.parametrize(("name", "values"), CASES)
def test_a_shipped_workload_keeps_all_promises(
    runtime: OpenClRuntime, name: str, values: dict[str, Any]
) -> None:
    workload = find(name)
    for variant in workload.variants("opencl"):
        need(variant.name)

    check_workload(workload, workload.infer(values, {}), runtime=runtime)


@pytest.mark.parametrize("skip", [0, 512, 8], ids=["start", "aligned", "unaligned"])
@pytest.mark.parametrize("direction", ["forward", "inverse", "roundtrip"])
def test_planes_are_transformed(
    runtime: OpenClRuntime, direction: str, skip: int, library: str
) -> None:
    p = params("3x16x24", "complex64", direction)
    x = normal(p)

    y = compute(runtime, FFT, p, {"x": x}, skip, library)

    assert residual(p, x, y).max() < 0.5


@pytest.mark.parametrize("batch", ["2x31x37", "2x127x10", "5x1x8"])
def test_planes_of_any_shape_are_transformed(
    runtime: OpenClRuntime, batch: str, library: str
) -> None:
    p = params(batch, "complex128")
    x = normal(p)

    y = compute(runtime, FFT, p, {"x": x}, 0, library)

    assert residual(p, x, y).max() < 0.5


@pytest.mark.parametrize("sizes", [(5, 7, 3), (16, 16, 16), (33, 17, 50), (1, 1, 1)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_matrix_is_updated(
    runtime: OpenClRuntime, dtype: str, sizes: tuple[int, int, int]
) -> None:
    p = MatrixParams(*sizes, dtype)
    rng = np.random.default_rng(1)
    shapes = {"C": (p.rows, p.cols), "A": (p.rows, p.inner), "B": (p.inner, p.cols)}
    inputs = {name: rng.standard_normal(shape).astype(dtype) for name, shape in shapes.items()}

    result = compute(runtime, MatrixUpdate(), p, inputs, 0, "tiles")

    assert MatrixUpdate().residual(p, inputs, {"C": result}, 1).max() < 0.5


def program(said: list[str], dtype: str = "float32") -> Any:
    from hetsched_workloads.opencl_program import Program

    source = "__kernel void one(OUT(REAL, y)) { TO(REAL, y); y[get_global_id(0)] = 1; }"
    return Program(source, dtype, KernelContext("opencl", say=said.append), "ones")


def test_a_later_job_compiles_no_program_again(runtime: OpenClRuntime) -> None:
    said: list[str] = []
    for _ in range(2):
        y = runtime.queue().array(runtime.allocate(64), 0, (16,), "float32")
        program(said)("one", (16,), None, y)
        assert (y.get() == 1).all()
    assert said == ["compiling ones for OpenCL ..."]


def test_a_device_without_double_precision_refuses_it() -> None:
    pytest.importorskip("pyopencl")
    device = SimpleNamespace(name="Small GPU", extensions="cl_khr_fp16")
    array = SimpleNamespace(queue=SimpleNamespace(device=device, context=object()))

    with pytest.raises(UsageError, match="Small GPU computes no float64"):
        program([], "float64")("one", (16,), None, array)
