"""What the declarations of the shipped workloads share: dtypes, sizes, variants. Without NumPy."""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from hetsched.errors import DataError, UsageError
from hetsched.units import parse_extent, quoted
from hetsched.workload import (
    FLOAT32,
    FLOAT64,
    Arrays,
    BaseWorkload,
    DtypeChoice,
    Iterative,
    Rows,
    Variant,
    convert,
    version,
)

if TYPE_CHECKING:
    import numpy as np

DTYPES = DtypeChoice(FLOAT32, FLOAT64)
"""Of workloads that compute with real numbers."""
KINDS = {"cupy": "cuda", "pyopencl": "opencl"}
"""Library -> the kind of device that it is for, of those that aren't for cores."""

# ---- libraries, which are found without being imported


@functools.cache
def shared_library(distribution: str, prefix: str) -> tuple[str, Path] | None:
    """Return (version, path) of the file ``prefix*`` of an installed distribution, or None."""
    try:
        installed = importlib.metadata.distribution(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None
    for file in installed.files or ():
        path = Path(str(installed.locate_file(file)))
        if path.name.startswith(prefix) and path.exists():
            return installed.version, path.resolve()
    return None


def late(module: str, make: str = "make") -> Callable[..., Any]:
    """Return a function of a module that is imported at its first call, as libraries load then."""

    def call(*arguments: Any) -> Any:
        return getattr(importlib.import_module(module), make)(*arguments)

    return call


def by_tiles() -> list[Variant]:
    installed = version("pyopencl")
    make = late("hetsched_workloads.opencl_products")
    return [Variant("tiles", f"pyopencl-{installed}", make)] if installed else []


def by_opencl_fft(workload: str) -> tuple[Variant, ...]:
    """Return a variant for each library of Fourier transforms on OpenCL devices."""
    make = late("hetsched_workloads.opencl_fourier", workload)

    def variant(name: str, installed: str) -> Variant:
        return Variant(name, installed, lambda p, _, context: make(p, context, name))

    found = {name: version(name) for name in ("pyvkfft", "reikna") if version("pyopencl")}
    return tuple(variant(name, installed) for name, installed in found.items() if installed)


class Solver(Iterative):
    """An iterative workload in a package of its own.

    Its module `kernels`, which needs NumPy, has the functions `generate` and `errors`.
    """

    package: str
    libraries: Mapping[str, str]
    """Library -> module of the package with its kernels, the likely fastest first."""
    writes_all = True
    dtypes = DTYPES

    def variants(self, kind: str) -> Sequence[Variant]:
        return [
            Variant(library, installed, late(f"{self.package}.{module}"))
            for library, module in self.libraries.items()
            if kind == KINDS.get(library, "cpu") and (installed := version(library))
        ]

    def generate(self, p: Any, seed: int, array: str, first: int, out: np.ndarray) -> None:
        late(f"{self.package}.kernels", "generate")(p, seed, array, first, out)

    def errors(self, p: Any, inputs: Arrays, outputs: Arrays, rows: Rows, seed: int) -> np.ndarray:
        check = late(f"{self.package}.kernels", "errors")
        errors: np.ndarray = check(p, inputs, outputs, rows)
        return errors


# ---- sizes of arrays as one parameter, "4096x512": parsed, and found from an input

Shapes = Mapping[str, tuple[tuple[int, ...], str]]
"""Input -> its shape and stored dtype."""
COUNTS = {1: "one", 2: "two", 3: "three", 4: "four"}


def parse(text: str, forms: Sequence[tuple[str, ...]]) -> tuple[int, ...]:
    """Return the sizes in `text`, named as in the form with as many axes. Raises UsageError."""
    for names in forms:
        if len(forms) == 1 or len(names) == text.count("x") + 1:
            return parse_extent(text, names)
    raise UsageError(f"{quoted(text)}: needs {described(forms)}; example: 256x512")


def described(forms: Sequence[tuple[str, ...]]) -> str:
    return " or ".join("x".join(names) for names in forms)


class WithExtent(BaseWorkload):
    """A workload with its sizes in one parameter, `extent`, which the first input has, too."""

    extent: str
    dtypes: DtypeChoice

    @abstractmethod
    def forms(self, explicit: Mapping[str, Any]) -> Sequence[tuple[str, ...]]:
        """Return the names of the axes, ("ROWS", "COLS"), for each number of axes."""

    def infer(self, explicit: Mapping[str, Any], arrays: Shapes) -> Any:
        full = {key: value for key, value in explicit.items() if value is not None}
        if "dtype" in full:
            full["dtype"] = self.dtypes.parse(self.name, full["dtype"]).name
        array, forms, given = self.inputs[0], self.forms(explicit), full.get(self.extent)
        if array in arrays:
            shape, dtype = arrays[array]
            holds, text = f"{array} holds {dtype} of shape {shape}", "x".join(map(str, shape))
            fitting = self.dtypes.fitting(dtype)
            if fitting is None:
                takes = self.dtypes.description
                raise DataError(f"{holds}; {self.name} computes in {takes}")
            if len(shape) not in map(len, forms):
                counts = " or ".join(COUNTS[len(names)] for names in forms)
                raise DataError(f"{holds}; {self.name} needs {counts} axes, {described(forms)}")
            if min(shape) < 1:
                raise DataError(f"{holds}: it is empty; nothing to compute")
            if given and parse(str(given), forms) != shape:
                way_out = f"give {text}, or leave it out"
                raise DataError(f"{holds}, but {self.extent} is {given}; {way_out}")
            full = {"dtype": fitting.name, **full, self.extent: text}
        elif not given:
            wanted = f"{self.extent}, {described(forms)}, or an input array"
            raise UsageError(f"{self.name} needs a {wanted}")
        params = convert(self, full)
        self.load(params)
        return params

    def resized(self, p: Any, load: int) -> Any:
        sizes = getattr(p, self.extent).split("x")[1:]
        return msgspec.structs.replace(p, **{self.extent: "x".join([str(load), *sizes])})
