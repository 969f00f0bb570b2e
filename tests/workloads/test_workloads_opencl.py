from __future__ import annotations

import importlib
from types import SimpleNamespace
from typing import Any

import pytest
from fft_cases import FFT, normal, params, residual
from opencl_toys import open_runtime, processor

from hetsched.devices.accelerator.runtime import Copy
from hetsched.devices.opencl.device import OpenClRuntime
from hetsched.errors import UsageError
from hetsched.testing import check_workload
from hetsched.workload import KernelContext, find


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


MORE = [
    ("fft", {"batch": "7x8x16", "kind": "r2c"}),
    ("fft", {"batch": "5x8x2", "kind": "c2r", "norm": "ortho"}),
    ("fft", {"batch": "3x4x6x5", "kind": "c2r", "axes": "1,2", "norm": "forward"}),
    ("fft", {"batch": "3x4x6x8", "axes": "1,3", "direction": "roundtrip"}),
]
"""Each takes a second to compile."""
CASES = (
    *(pytest.param(*case, marks=pytest.mark.stress) for case in MORE),
    ("fft", {"batch": "5x8x9", "kind": "c2r", "dtype": "complex128"}),
    ("fft", {"batch": "5x12x9", "kind": "r2c", "axes": "2,1", "norm": "ortho"}),
    ("fft", {"batch": "5x1x16", "axes": "-1", "direction": "inverse", "norm": "ortho"}),
    ("fft", {"batch": "2x31x10", "dtype": "complex128"}),
    ("matrix_update", {"rows": 33, "cols": 17, "inner": 50}),
    ("matrix_update", {"rows": 16, "cols": 16, "inner": 16, "dtype": "float64"}),
    ("matrix_update", {"rows": 1, "cols": 1, "inner": 1}),
    ("power_spectrum", {"count": 7, "rows": 8, "cols": 16}),
    ("power_spectrum", {"count": 5, "rows": 1, "cols": 8, "dtype": "float64"}),
    ("convolve", {"count": 6, "rows": 14, "cols": 13, "filters": 2,
                  "filter_rows": 3, "filter_cols": 4}),
    ("convolve", {"count": 5, "rows": 2, "cols": 15, "filters": 1,
                  "filter_rows": 15, "filter_cols": 2, "mode": "full"}),
    ("welch", {"channels": 6, "samples": 300, "nperseg": 64, "noverlap": 50}),
    ("welch", {"channels": 5, "samples": 70, "nperseg": 9, "detrend": "none", "dtype": "f64"}),
    ("matmul", {"count": 7, "rows": 19, "inner": 5, "cols": 6}),
    ("matmul", {"count": 5, "rows": 1, "inner": 500, "cols": 1, "dtype": "float64"}),
)  # fmt: skip
"""Most with transforms of 2^n: for other sizes much more is compiled."""


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
def test_planes_are_transformed_wherever_they_lie(
    runtime: OpenClRuntime, direction: str, skip: int, library: str
) -> None:
    p = params("3x16x24", "complex64", direction)
    x, y, queue = normal(p), normal(p), runtime.queue()
    variant = next(v for v in FFT.variants("opencl") if v.name == library)
    kernel = variant.make(p, p.count, KernelContext("opencl"))
    block = runtime.allocate(skip + 2 * x.nbytes)
    source = queue.array(block, skip, x.shape, x.dtype.str)
    target = queue.array(block, skip + x.nbytes, x.shape, x.dtype.str)

    queue.copy_in([Copy(block, skip, x)], 1)
    queue.launch(lambda: kernel({"x": source}, {"y": target}), p.count)
    queue.copy_out([Copy(block, skip + x.nbytes, y)], 1)
    queue.finish()

    assert residual(p, x, y).max() < 0.5


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
