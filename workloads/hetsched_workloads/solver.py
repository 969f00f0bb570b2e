"""What the shipped iterative workloads share."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hetsched.workload import Arrays, Iterative, Rows, Variant, version
from hetsched_workloads import DTYPES
from hetsched_workloads.installed import late

if TYPE_CHECKING:
    import numpy as np


KINDS = {"cupy": "cuda", "pyopencl": "opencl"}
"""Library -> the kind of device that it is for, of those that aren't for cores."""


class Solver(Iterative):
    """An iterative workload in a package of its own.

    Its module `verification`, which needs NumPy, has the functions `generate` and `errors`.
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
        self._verification().generate(p, seed, array, first, out)

    def errors(self, p: Any, inputs: Arrays, outputs: Arrays, rows: Rows, seed: int) -> np.ndarray:
        errors: np.ndarray = self._verification().errors(p, inputs, outputs, rows)
        return errors

    def _verification(self) -> Any:
        return importlib.import_module(f"{self.package}.verification")
