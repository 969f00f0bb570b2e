"""Workloads with one source for NumPy and CuPy, whose check computes each unit again."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hetsched.workload import (
    FLOAT32,
    FLOAT64,
    Arrays,
    DtypeChoice,
    KernelContext,
    Variant,
    Workload,
)
from hetsched_workloads.installed import solver_variants

if TYPE_CHECKING:
    import numpy as np

DTYPES = DtypeChoice(FLOAT32, FLOAT64)
PIECE_BYTES = 1 << 20
"""Bytes of the units that a core transforms at once: their spectra stay in its cache."""


class Recomputed(Workload):
    """A workload with an output "y" that SciPy or NumPy computes on cores, and CuPy on GPUs."""

    writes_all = True
    dtypes = DTYPES
    library = "scipy"
    tolerances = (1e-2, 1e-9)
    """Of results in single and in double precision."""

    @abstractmethod
    def exact(self, p: Any, inputs: Arrays) -> np.ndarray:
        """Return "y" of one unit, computed by other means from double precision.

        `inputs`: name -> the unit, or the whole resident array.
        """

    def variants(self, kind: str) -> Sequence[Variant]:
        libraries = {self.library: "kernel", "cupy": "kernel"}
        installed = solver_variants(kind, f"{__name__}.", **libraries)
        return [
            Variant(found.name, found.version, self._make, threaded=kind == "cpu")
            for found in installed
        ]

    def _make(self, p: Any, chunk: int, context: KernelContext) -> Any:
        return self.kernel(p, context)

    def tolerance(self, p: Any) -> float:
        single, double = self.tolerances
        return double if DTYPES[p.dtype].is_double else single

    def reference(self, p: Any, inputs: Arrays, i: int) -> Mapping[str, np.ndarray]:
        whole = {spec.name for spec in self.arrays(p) if spec.is_whole}
        import numpy as np

        unit = {
            name: np.asarray(array if name in whole else array[i], np.float64)
            for name, array in inputs.items()
        }
        return {"y": self.exact(p, unit)}

    def residual(self, p: Any, inputs: Arrays, outputs: Arrays, seed: int) -> np.ndarray:
        """Compute every unit again: the largest error over the rms of the unit's values."""
        import numpy as np

        y = outputs["y"]
        errors = np.empty(len(y))
        with np.errstate(all="ignore"):
            for i in range(len(y)):
                expected = self.reference(p, inputs, i)["y"]
                if not np.isfinite(expected).all():
                    errors[i] = np.inf if np.isfinite(y[i]).all() else 0.0
                    continue
                size = np.sqrt(np.square(expected).mean()) + np.finfo(y.dtype).smallest_normal
                errors[i] = np.abs(y[i] - expected).max() / (self.tolerance(p) * size)
        return errors


def transforms(context: KernelContext) -> tuple[Any, dict[str, int]]:
    """Return the module of Fourier transforms for the kernel's arrays, and its keywords."""
    if context.xp.__name__ == "numpy":
        import scipy.fft

        return scipy.fft, {"workers": context.threads}
    import cupyx.scipy.fft

    return cupyx.scipy.fft, {}


def pieces(context: KernelContext, array: Any) -> Iterator[slice]:
    """Yield slices of units: a few for a core's cache, all at once on a GPU."""
    count = len(array)
    if context.xp.__name__ == "numpy":
        count = max(1, PIECE_BYTES * context.threads // array[:1].nbytes)
    for first in range(0, len(array), count):
        yield slice(first, first + count)
