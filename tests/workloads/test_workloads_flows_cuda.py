"""The CUDA kernels of kmeans and heat on NumPy in the place of CuPy."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from types import ModuleType

import numpy as np
import pytest
from flow_cases import CASES
from hetsched_workloads.kmeans import KMeans, KMeansParams

from hetsched.iterations.serial import run
from hetsched.workload import Iterative, KernelContext, Variant


@pytest.fixture
def toy_cupy() -> ModuleType:
    """NumPy under CuPy's name, with the function that copies to the host."""
    cupy = ModuleType("cupy")
    cupy.__dict__.update({name: getattr(np, name) for name in np.__all__})
    cupy.__dict__["asnumpy"] = np.array
    return cupy


def with_cuda_kernels(workload: Iterative, cupy: ModuleType) -> Iterative:
    """The workload with its CUDA kernels on "cpu"."""

    class OnCuda(type(workload)):  # type: ignore[misc]
        def variants(self, kind: str) -> Sequence[Variant]:
            module = importlib.import_module(f"hetsched_workloads.{workload.name}.kernels")
            context = KernelContext("cuda", xp=cupy)
            return (Variant("cupy", "1", lambda p, load, _: module.make(p, load, context)),)

    return OnCuda()


@pytest.mark.filterwarnings("ignore:divide by zero")  # CuPy doesn't warn
@pytest.mark.parametrize("name", CASES)
def test_cuda_kernels_give_the_results_of_the_cores(name: str, toy_cupy: ModuleType) -> None:
    workload, p = CASES[name]
    load = workload.load(p)

    on_gpu = run(with_cuda_kernels(workload, toy_cupy), p, {}, (load // 3, load - load // 3))

    on_cores = run(workload, p, {}, (load,), variant="numpy")
    assert on_gpu.iterations == on_cores.iterations
    for array, values in on_cores.outputs.items():
        np.testing.assert_allclose(on_gpu.outputs[array], values, rtol=1e-4, atol=1e-5)


def test_a_cluster_without_points_gets_the_farthest_point(toy_cupy: ModuleType) -> None:
    x = np.array([[0.0], [1.0], [2.0], [10.0], [11.0], [50.0]])
    start = np.array([[1.0], [10.0], [1000.0]])
    p = KMeansParams(6, 1, 3, start="given", dtype="float64")

    result = run(with_cuda_kernels(KMeans(), toy_cupy), p, {"points": x, "start": start}, (2, 4))

    assert result.outputs["labels"].tolist() == [0, 0, 0, 1, 1, 2]


@pytest.mark.filterwarnings("ignore:divide by zero")  # CuPy doesn't warn
def test_clusters_do_not_depend_on_the_size_of_blocks(
    toy_cupy: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    workload, p = CASES["kmeans"]
    whole = run(with_cuda_kernels(workload, toy_cupy), p, {}, (workload.load(p),))
    module = importlib.import_module("hetsched_workloads.kmeans.kernels")
    monkeypatch.setattr(module, "GPU_BLOCK_BYTES", 1 << 10)

    blocks = run(with_cuda_kernels(workload, toy_cupy), p, {}, (workload.load(p),))

    np.testing.assert_array_equal(blocks.outputs["labels"], whole.outputs["labels"])
    np.testing.assert_allclose(blocks.outputs["centroids"], whole.outputs["centroids"], rtol=1e-5)
