from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import pytest
from solver_cases import needs_numba

from hetsched.memory import MemoryDemand
from hetsched.testing import check_workload
from hetsched.workload import ArraySpec, Kernel, KernelContext, Variant, Workload, find

IMAGES = {"count": 6, "rows": 12, "cols": 9}
CASES = (
    ("fft", {"batch": "7x12x10"}),
    ("fft", {"batch": "5x8x9", "dtype": "complex128", "direction": "inverse"}),
    ("fft", {"batch": "1x5x1", "direction": "roundtrip"}),
    ("fft", {"batch": "37x1x7", "direction": "roundtrip"}),
    ("fft", {"batch": "3x127x31", "direction": "inverse"}),
    ("fft", {"batch": "2x500x500"}),
    ("fft", {"batch": "1x509x509", "dtype": "complex128"}),
    ("fft", {"batch": "7x12x9", "axes": "-1"}),
    ("fft", {"batch": "5x6x4x7", "axes": "1,2,3", "direction": "roundtrip", "norm": "ortho"}),
    ("fft", {"batch": "6x12x10", "kind": "r2c", "norm": "forward"}),
    ("fft", {"batch": "6x12x6", "kind": "c2r", "dtype": "complex128"}),
    ("matrix_update", {"rows": 20, "cols": 7, "inner": 5}),
    ("matrix_update", {"rows": 1, "cols": 9, "inner": 1, "dtype": "float64"}),
    ("matrix_update", {"rows": 600, "cols": 64, "inner": 31, "dtype": "float64"}),
    ("matrix_update", {"rows": 40, "cols": 1, "inner": 300}),
    ("matrix_update", {"rows": 300, "cols": 7, "inner": 1000}),
    ("jacobi", {"n": 40}),
    ("jacobi", {"n": 70, "criterion": "change", "dtype": "float32"}),
    ("pcg", {"grid": "5x4x3", "dtype": "float32"}),
    pytest.param(
        "pcg",
        {"grid": "8x4x4", "preconditioner": "cholesky", "block": 16},
        marks=needs_numba,
    ),
    ("heat", {"grid": "20x12", "steps": 6}),
    ("heat", {"grid": "12x9", "steps": 40, "border": "dirichlet,neumann", "tolerance": 1e-3}),
    ("heat", {"grid": "6x5x4", "dtype": "float64"}),
    ("kmeans", {"clusters": 3, "count": 60, "dimensions": 2}),
    ("kmeans", {"clusters": 6, "count": 400, "dimensions": 5, "dtype": "float64"}),
    ("kmeans", {"clusters": 6, "count": 100, "dimensions": 2, "start": "given"}),
    ("power_spectrum", {"count": 7, "rows": 12, "cols": 9}),
    ("power_spectrum", {"count": 5, "rows": 1, "cols": 8, "dtype": "float64"}),
    ("convolve", {**IMAGES, "filters": 2, "filter_rows": 3, "filter_cols": 4}),
    ("convolve", {**IMAGES, "filters": 1, "filter_rows": 15, "filter_cols": 2, "mode": "full"}),
    ("welch", {"channels": 6, "samples": 300, "nperseg": 64}),
    ("welch", {"channels": 5, "samples": 70, "nperseg": 9, "detrend": "none", "dtype": "f64"}),
    ("welch", {"channels": 3, "samples": 300, "nperseg": 101, "window": "hamming", "fs": 10}),
    ("welch", {"channels": 3, "samples": 300, "nperseg": 64, "noverlap": 50, "window": "boxcar"}),
    ("welch", {"channels": 2, "samples": 6, "nperseg": 1, "noverlap": 0, "detrend": "none"}),
    ("registration", IMAGES),
    ("registration", {"count": 5, "rows": 32, "cols": 1, "dtype": "float64"}),
    ("matmul", {"count": 7, "rows": 9, "inner": 5, "cols": 6}),
    ("matmul", {"count": 5, "rows": 1, "inner": 500, "cols": 1, "dtype": "float64"}),
    ("statistics", {"shape": "60"}),
    ("statistics", {"shape": "12x7x3", "dtype": "float64", "quantiles": "0,0.1,1", "bins": 9}),
)


@pytest.mark.parametrize(("name", "values"), CASES)
def test_a_shipped_workload_keeps_all_promises(name: str, values: dict[str, Any]) -> None:
    workload = find(name)

    check_workload(workload, workload.infer(values, {}))


class ScaleParams(msgspec.Struct, frozen=True):
    rows: int = 9


class Scale(Workload):
    """y = 2 x + 1, and its row's number of values."""

    name = "scale"
    Params = ScaleParams
    writes_all = True

    def load(self, p: ScaleParams) -> int:
        return p.rows

    def arrays(self, p: ScaleParams) -> Sequence[ArraySpec]:
        return ArraySpec("x", "split", (3,), "float64"), ArraySpec("y", "out", (3,), "float64")

    def demand(self, p: ScaleParams, kind: str) -> MemoryDemand:
        return MemoryDemand(input_bytes=24, work_bytes=0, output_bytes=24)

    def flops(self, p: ScaleParams, x: int) -> float:
        return 6.0 * x

    def variants(self, kind: str) -> Sequence[Variant]:
        return (Variant("numpy", "1", self.make),)

    def make(self, p: ScaleParams, chunk: int, context: KernelContext) -> Kernel:
        def kernel(inputs: Any, outputs: Any) -> None:
            np.multiply(inputs["x"], 2, out=outputs["y"])
            outputs["y"][...] += 1

        return kernel

    def generate(self, p: Any, seed: int, array: str, first: int, out: np.ndarray) -> None:
        for unit in range(len(out)):
            out[unit] = np.random.default_rng((seed, first + unit)).random(3)

    def reference(self, p: Any, inputs: Any, i: int) -> Mapping[str, np.ndarray]:
        return {"y": 2 * inputs["x"][i] + 1}

    def residual(self, p: Any, inputs: Any, outputs: Any, seed: int) -> np.ndarray:
        errors: np.ndarray = np.abs(outputs["y"] - 2 * inputs["x"] - 1).max(axis=1) * 1e9
        return errors


class DependsOnThePiece(Scale):
    def generate(self, p: Any, seed: int, array: str, first: int, out: np.ndarray) -> None:
        out[...] = np.random.default_rng(seed).random(out.shape)


class LeavesAHole(Scale):
    def generate(self, p: Any, seed: int, array: str, first: int, out: np.ndarray) -> None:
        out[:, 1:] = 0.5


class ChangesItsInput(Scale):
    def make(self, p: ScaleParams, chunk: int, context: KernelContext) -> Kernel:
        def kernel(inputs: Any, outputs: Any) -> None:
            outputs["y"][...] = 2 * inputs["x"] + 1
            inputs["x"][...] = 0

        return kernel


class ForgetsLaterChunks(Scale):
    def make(self, p: ScaleParams, chunk: int, context: KernelContext) -> Kernel:
        calls: list[int] = []

        def kernel(inputs: Any, outputs: Any) -> None:
            calls.append(1)
            outputs["y"][...] = 2 * inputs["x"] + len(calls)

        return kernel


class NeedsTheWholeLoad(Scale):
    def make(self, p: ScaleParams, chunk: int, context: KernelContext) -> Kernel:
        def kernel(inputs: Any, outputs: Any) -> None:
            outputs["y"][...] = 2 * inputs["x"] + inputs["x"].max() / inputs["x"].max()
            outputs["y"][:1] += len(inputs["x"]) != p.rows

        return kernel


class BelievesEverything(Scale):
    def residual(self, p: Any, inputs: Any, outputs: Any, seed: int) -> np.ndarray:
        return np.zeros(len(outputs["y"]))


class ReturnsOneNumber(Scale):
    def residual(self, p: Any, inputs: Any, outputs: Any, seed: int) -> np.ndarray:
        return np.zeros(())


class HasAnotherReference(Scale):
    def reference(self, p: Any, inputs: Any, i: int) -> Mapping[str, np.ndarray]:
        return {"y": 2 * inputs["x"][i]}


class ForgetsAnInput(Scale):
    inputs = ("z",)


class LearnsNothing(Scale):
    def speed_key(self, p: ScaleParams) -> str:
        return f"{p.rows}"

    def resized(self, p: ScaleParams, load: int) -> ScaleParams:
        return ScaleParams(load)


BROKEN = (
    (DependsOnThePiece, "depends on the piece"),
    (LeavesAHole, "leaves values unwritten"),
    (ChangesItsInput, "changes its input x"),
    (ForgetsLaterChunks, "in pieces of 3, 6: unit 3 has residual"),
    (NeedsTheWholeLoad, "in pieces of 3, 6"),
    (BelievesEverything, "misses a wrong element of y"),
    (ReturnsOneNumber, "not 9 real numbers"),
    (HasAnotherReference, "off reference()"),
    (ForgetsAnInput, "inputs lacks x"),
    (LearnsNothing, "speed_key() depends on the load"),
)


@pytest.mark.parametrize("rows", [1, 2, 9])
def test_a_right_plug_in_passes(rows: int) -> None:
    check_workload(Scale(), ScaleParams(rows))


@pytest.mark.parametrize(("wrong", "promise"), BROKEN)
def test_a_broken_promise_is_named(wrong: type[Scale], promise: str) -> None:
    with pytest.raises(AssertionError) as broken:
        check_workload(wrong(), ScaleParams())

    assert promise in str(broken.value)
