"""The workload `fft`: a batch of planes, each transformed in two dimensions, or along any axes.

forward is unnormalised, inverse has the factor 1/n (n = ROWS * COLS), roundtrip is forward and
then inverse, in the output's buffer. The result is in "y"; "x" is never written. No NumPy in here.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec import Meta

from hetsched.errors import DataError, UsageError
from hetsched.machine_limits import processor
from hetsched.memory import MemoryDemand
from hetsched.units import quoted
from hetsched.workload import (
    COMPLEX64,
    COMPLEX128,
    Arrays,
    ArraySpec,
    DtypeChoice,
    Variant,
    version,
)
from hetsched_workloads.declarations import (
    Shapes,
    WithExtent,
    by_opencl_fft,
    late,
    parse,
    shared_library,
)
from hetsched_workloads.recomputed import Recomputed

if TYPE_CHECKING:
    import numpy as np

FORMS = (("COUNT", "ROWS", "COLS"),)
FORMS_WITH_AXES = (("COUNT", "COLS"), *FORMS, ("COUNT", "DEPTH", "ROWS", "COLS"))
DTYPES = DtypeChoice(COMPLEX64, COMPLEX128)
CPU = ("pyfftw", "ducc0", "mkl", "scipy")
HERE = "hetsched_workloads.fft"
OF_TYPICAL, OF_OWN, OF_LARGEST = 256.0, 16.0, 2.0
"""Roundings by which a value may be off: of a typical value, four times what primes need; of its
own; of the largest one, as the mean of a photograph, which a library adds to a few others."""


class FftParams(msgspec.Struct, frozen=True):
    batch: Annotated[
        str, Meta(description="COUNTxROWSxCOLS, as 256x512x512; 2 to 4 sizes with --axes")
    ]
    dtype: Annotated[str, Meta(description=DTYPES.description)] = DTYPES.single.name
    direction: Annotated[
        Literal["forward", "inverse", "roundtrip"],
        Meta(description="roundtrip: forward, then inverse"),
    ] = "forward"
    axes: Annotated[
        str, Meta(description="of the batch, as -1 or 1,2; not 0, that of units [default: 1,2]")
    ] = ""
    kind: Annotated[
        Literal["c2c", "r2c", "c2r"],
        Meta(description="c2c; r2c: of real values, forward; c2r: to real ones, inverse"),
    ] = "c2c"
    norm: Annotated[
        Literal["backward", "ortho", "forward"],
        Meta(description="the direction that is scaled by 1/n; ortho: both by its root"),
    ] = "backward"

    @property
    def forms(self) -> tuple[tuple[str, ...], ...]:
        return FORMS_WITH_AXES if self.axes else FORMS

    @property
    def count(self) -> int:
        return parse(self.batch, self.forms)[0]

    @property
    def shape(self) -> tuple[int, ...]:
        """Of a unit of the input, as (rows, columns)."""
        return parse(self.batch, self.forms)[1:]

    @property
    def output_shape(self) -> tuple[int, ...]:
        """Of a unit of the output: a real transform halves the last of its axes."""
        last = self.batch_axes[-1] - 1
        n = self.shape[last]
        size = {"c2c": n, "r2c": n // 2 + 1, "c2r": 2 * (n - 1)}[self.kind]
        return (*self.shape[:last], size, *self.shape[last + 1 :])

    @property
    def batch_axes(self) -> tuple[int, ...]:
        """The axes that are transformed, counted from 1. Raises UsageError."""
        if not self.axes:
            return 1, 2
        ndim = len(self.shape) + 1
        try:
            axes = [int(text) for text in self.axes.split(",")]
        except ValueError:
            raise UsageError(f"axes: {quoted(self.axes)}, must be numbers, as 1,2") from None
        places = tuple(axis + ndim if axis < 0 else axis for axis in axes)
        if not all(0 < axis < ndim for axis in places) or len({*places}) < len(places):
            raise UsageError(f"axes: {self.axes}, must be different ones from 1 to {ndim - 1}")
        return places

    @property
    def is_planes(self) -> bool:
        """Whether these are complex planes with the usual norm, which have tuned kernels."""
        plain = self.kind == "c2c" and self.norm == "backward" and len(self.shape) == 2
        return plain and sorted(self.batch_axes) == [1, 2]

    @property
    def points(self) -> int:
        """Of one transform."""
        whole = self.output_shape if self.kind == "c2r" else self.shape
        return math.prod(whole[axis - 1] for axis in self.batch_axes)

    @property
    def plane_bytes(self) -> int:
        return math.prod(self.shape) * DTYPES[self.dtype].item_bytes

    @property
    def transforms(self) -> tuple[str, ...]:
        """SciPy's names of the transforms, one after the other."""
        if self.kind != "c2c":
            return ({"r2c": "rfftn", "c2r": "irfftn"}[self.kind],)
        steps = {"forward": ("fftn",), "inverse": ("ifftn",), "roundtrip": ("fftn", "ifftn")}
        return steps[self.direction]

    def factor(self, name: str) -> float:
        """Return what an unscaled transform, by SciPy's name, is multiplied by."""
        power = {"backward": 0.0, "ortho": 0.5, "forward": 1.0}[self.norm]
        return float(self.points ** -(1 - power if name.startswith("i") else power))


class Fft(WithExtent, Recomputed):
    """Batched FFTs; one unit is one index of axis 0, as a plane."""

    name = "fft"
    in_threads = "yes"
    in_place = {"cuda": {"y": "x"}}
    Params = FftParams
    extent = "batch"
    dtypes = DTYPES
    tolerances = (2e-3, 2e-11)

    def load(self, p: FftParams) -> int:
        DTYPES.parse(self.name, p.dtype)
        impossible = {"c2c": (), "r2c": ("inverse", "roundtrip"), "c2r": ("roundtrip",)}[p.kind]
        if p.direction in impossible:
            raise UsageError(f"direction {p.direction}: there is none of kind {p.kind}")
        if min(p.output_shape) < 1:
            raise UsageError(f"kind c2r: the last of its axes has one value in {p.batch}, needs 2")
        return p.count

    def arrays(self, p: FftParams) -> Sequence[ArraySpec]:
        real = DTYPES[p.dtype].real
        return (
            ArraySpec("x", "split", p.shape, real if p.kind == "r2c" else p.dtype),
            ArraySpec("y", "out", p.output_shape, real if p.kind == "c2r" else p.dtype),
        )

    def demand(self, p: FftParams, kind: str) -> MemoryDemand:
        """Return the demand: on a GPU results replace inputs, and chunks share a work area.

        It is assumed as large as a chunk, four times for sizes with prime factors above 7
        (Bluestein's algorithm); the CUDA variant queries cuFFT for the actual size.
        """
        demand = super().demand(p, kind)
        if kind not in self.in_place:
            return replace(demand, work_bytes=0)
        work = p.plane_bytes * (1 if all(_smooth(n) for n in p.shape) else 4)
        if not p.is_planes:
            work += 2 * p.plane_bytes  # copies of what CuPy transforms
        return replace(demand, work_bytes=work, work="max")

    def flops(self, p: FftParams, x: int) -> float:
        """Return 5 n log2 n per transform by convention, and 2 n if the result is scaled."""
        n = float(p.points)
        transform = 5 * n * max(1.0, math.log2(n)) / (1 if p.kind == "c2c" else 2)
        transforms = 2 if p.direction == "roundtrip" else 1
        scaling = 0.0 if p.direction == "forward" else 2 * n
        per_unit = math.prod(p.output_shape if p.kind == "c2r" else p.shape) / n
        return x * per_unit * (transforms * transform + scaling)

    def speed_key(self, p: FftParams) -> str:
        key = super().speed_key(p)
        return key if p.is_planes else f"{key} {p.kind} {p.batch_axes} {p.norm} {p.direction}"

    def variants(self, kind: str) -> Sequence[Variant]:
        return _variants(kind)

    def generate(self, p: FftParams, seed: int, array: str, first: int, out: np.ndarray) -> None:
        """Fill `out` with standard normal units, or for kind c2r with spectra of real ones."""
        import numpy as np

        if p.kind == "c2r":
            values = np.empty((len(out), *p.output_shape))
            super().generate(p, seed, array, first, values)
            out[...] = np.fft.rfftn(values, axes=p.batch_axes)
            return
        super().generate(p, seed, array, first, out)
        if p.kind == "c2c":
            out *= 0.5**0.5  # of real and imaginary part together

    def exact(self, p: FftParams, inputs: Arrays) -> np.ndarray:
        import numpy as np

        result: np.ndarray = inputs["x"]
        if p.direction != "roundtrip":
            transform = getattr(np.fft, p.transforms[0])
            result = transform(result, axes=[a - 1 for a in p.batch_axes], norm=p.norm)
        return result

    def error(self, p: FftParams, unit: Arrays, y: np.ndarray, seed: int) -> float | None:
        """Return the largest error over what roundings may explain."""
        import numpy as np

        expected = self.exact(p, unit)
        sizes = np.abs(expected)
        largest = float(sizes.max())
        if not np.isfinite(largest):
            return None
        sizes /= largest or 1.0  # so that squares don't overflow
        typical = np.sqrt(np.square(sizes).mean())
        info = np.finfo(y.dtype)
        roundings = OF_TYPICAL * typical + OF_OWN * sizes + OF_LARGEST
        allowed = roundings * float(info.eps) * largest + info.smallest_normal * y.size
        return float((np.abs(y - expected) / allowed).max())

    def forms(self, explicit: Mapping[str, Any]) -> Sequence[tuple[str, ...]]:
        return FORMS_WITH_AXES if explicit.get("axes") else FORMS

    def infer(self, explicit: Mapping[str, Any], arrays: Shapes) -> FftParams:
        params: FftParams = super().infer(explicit, arrays)
        if params.kind == "r2c" and "x" in arrays and "c" in arrays["x"][1]:
            raise DataError(f"x holds {arrays['x'][1]}; kind r2c takes real values")
        return params


@functools.cache
def _variants(kind: str) -> tuple[Variant, ...]:
    """Return those that are installed, the likely fastest first."""
    make, left = late(f"{HERE}.libraries"), late(f"{HERE}.tuning", "tuning_left")
    if kind == "cuda" and (installed := version("cupy")):
        of_cupy = functools.partial(make, f"cupy {installed}")
        return (Variant("cufft", f"cupy-{installed}", of_cupy),)
    if kind != "cpu":
        return by_opencl_fft("fft") if kind == "opencl" else ()
    found = {name: version(name) for name in CPU}
    found["mkl"] = (shared_library("mkl", "libmkl_rt.so") or (None,))[0]
    # MKL has optimised kernels for Intel's processors only; on others it loads generic ones.
    order = sorted(CPU, key=lambda name: name != "mkl") if "Intel" in processor() else CPU
    return tuple(
        # Threads of MKL need its OpenMP, which leaves files in shared memory after a kill.
        Variant(
            name,
            installed,
            functools.partial(make, f"{name} {installed}"),
            threaded=name != "mkl",
            tuning=functools.partial(left, f"{name} {installed}"),
        )
        for name in order
        if (installed := found[name])
    )


def _smooth(n: int) -> bool:
    """Whether `n` has no prime factor above 7."""
    for prime in (2, 3, 5, 7):
        while n % prime == 0:
            n //= prime
    return n == 1
