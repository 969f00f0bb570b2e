"""The workload `fft`: a batch of planes, each transformed in two dimensions. No NumPy in here.

forward is unnormalised, inverse has the factor 1/n (n = ROWS * COLS), roundtrip is forward and
then inverse, in the output's buffer. The result is in "y"; "x" is never written.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec import Meta

from hetsched.memory import MemoryDemand
from hetsched.workload import (
    COMPLEX64,
    COMPLEX128,
    Arrays,
    ArraySpec,
    DtypeChoice,
    Variant,
    Workload,
    convert,
)
from hetsched_workloads import extents
from hetsched_workloads.fft import variants as table

if TYPE_CHECKING:
    import numpy as np

FORMS = (("COUNT", "ROWS", "COLS"),)
DTYPES = DtypeChoice(COMPLEX64, COMPLEX128)


class FftParams(msgspec.Struct, frozen=True):
    batch: Annotated[str, Meta(description="COUNTxROWSxCOLS, as 256x512x512")]
    dtype: Annotated[str, Meta(description=DTYPES.description)] = DTYPES.single.name
    direction: Annotated[
        Literal["forward", "inverse", "roundtrip"],
        Meta(description="roundtrip: forward, then inverse"),
    ] = "forward"

    @property
    def count(self) -> int:
        return extents.parse(self.batch, FORMS)[0]

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, columns) of a plane."""
        _, rows, cols = extents.parse(self.batch, FORMS)
        return rows, cols

    @property
    def points(self) -> int:
        rows, cols = self.shape
        return rows * cols

    @property
    def plane_bytes(self) -> int:
        return self.points * DTYPES[self.dtype].item_bytes

    @property
    def scale(self) -> float:
        """Factor of the last transform."""
        return 1.0 if self.direction == "forward" else 1.0 / self.points


class Fft(Workload):
    """Batched 2D complex FFT; one unit is one plane."""

    name = "fft"
    writes_all = True
    in_threads = "yes"
    in_place = {"cuda": {"y": "x"}}
    Params = FftParams

    def load(self, p: FftParams) -> int:
        DTYPES.parse(self.name, p.dtype)
        return p.count

    def resized(self, p: FftParams, load: int) -> FftParams:
        rows, cols = p.shape
        return msgspec.structs.replace(p, batch=f"{load}x{rows}x{cols}")

    def arrays(self, p: FftParams) -> Sequence[ArraySpec]:
        return (
            ArraySpec("x", "split", p.shape, p.dtype),
            ArraySpec("y", "out", p.shape, p.dtype),
        )

    def demand(self, p: FftParams, kind: str) -> MemoryDemand:
        """Return the demand: on a GPU results replace inputs, and chunks share a work area.

        The work area is assumed as large as a chunk, four times for sizes with prime factors above
        7 (Bluestein's algorithm); the CUDA variant queries cuFFT for the actual size.
        """
        plane = p.plane_bytes
        if kind not in self.in_place:
            return MemoryDemand(input_bytes=plane, work_bytes=0, output_bytes=plane)
        work = plane * (1 if all(_smooth(n) for n in p.shape) else 4)
        return MemoryDemand(input_bytes=plane, work_bytes=work, output_bytes=0, work="max")

    def flops(self, p: FftParams, x: int) -> float:
        """Return 5 n log2 n per transform by convention, and 2 n if the result is scaled."""
        n = float(p.points)
        transform = 5 * n * max(1.0, math.log2(n))
        transforms = 2 if p.direction == "roundtrip" else 1
        scaling = 0.0 if p.direction == "forward" else 2 * n
        return x * (transforms * transform + scaling)

    def variants(self, kind: str) -> Sequence[Variant]:
        return table.variants(kind)

    def generate(self, p: FftParams, seed: int, array: str, first: int, out: np.ndarray) -> None:
        from hetsched_workloads.fft import verification

        verification.generate(seed, array, first, out)

    def reference(self, p: FftParams, inputs: Arrays, i: int) -> Mapping[str, np.ndarray]:
        from hetsched_workloads.fft import verification

        return {"y": verification.reference(p.direction, inputs["x"][i])}

    def residual(self, p: FftParams, inputs: Arrays, outputs: Arrays, seed: int) -> np.ndarray:
        from hetsched_workloads.fft import verification

        return verification.residual(p.direction, inputs["x"], outputs["y"], seed)

    def tolerance(self, p: FftParams) -> float:
        return 2e-11 if DTYPES[p.dtype].is_double else 2e-3

    def infer(self, explicit: Mapping[str, Any], arrays: extents.Shapes) -> FftParams:
        stored = ("x", arrays["x"]) if "x" in arrays else None
        full = extents.infer(self.name, "batch", FORMS, DTYPES, explicit, stored)
        params: FftParams = convert(self, full)
        self.load(params)
        return params


def _smooth(n: int) -> bool:
    """Whether `n` has no prime factor above 7."""
    for prime in (2, 3, 5, 7):
        while n % prime == 0:
            n //= prime
    return n == 1
