"""Workloads with one source for NumPy and CuPy, whose check computes each unit again."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hetsched.workload import Arrays, DtypeChoice, KernelContext, Variant, Workload, version
from hetsched_workloads.declarations import DTYPES, by_opencl_fft

if TYPE_CHECKING:
    import numpy as np

ROUNDINGS = 32.0
"""Roundings of a unit's largest intermediate value by which a result may be off."""
PIECE_BYTES = 1 << 20
"""Bytes of the units that a core transforms at once: their spectra stay in its cache."""


class Recomputed(Workload):
    """A workload with an output "y" that SciPy or NumPy computes on cores, and CuPy on GPUs."""

    writes_all = True
    dtypes: DtypeChoice = DTYPES
    library = "scipy"
    has_opencl = False
    """Whether `opencl_fourier` has its kernel for OpenCL devices."""
    tolerances = (1e-2, 1e-9)
    """Of results in single and in double precision."""

    @abstractmethod
    def exact(self, p: Any, inputs: Arrays) -> np.ndarray:
        """Return "y" of one unit, computed by other means from double precision.

        `inputs`: name -> the unit, or the whole resident array.
        """

    def rounding(self, p: Any, inputs: Arrays, exact: np.ndarray) -> np.ndarray | float:
        """Return the size of values whose roundings change "y" of one unit.

        What cancels leaves an error that isn't small beside the result. `inputs`: as of `exact`.
        """
        return 0.0

    def variants(self, kind: str) -> Sequence[Variant]:
        if kind == "opencl" and self.has_opencl:
            return by_opencl_fft(self.name)
        library = {"cpu": self.library, "cuda": "cupy"}.get(kind, "")
        if not (installed := version(library)):
            return ()
        is_threaded = kind == "cpu"
        return [Variant(library, installed, lambda p, _, c: self.kernel(p, c), is_threaded)]

    def tolerance(self, p: Any) -> float:
        single, double = self.tolerances
        return double if p.dtype in ("float64", "complex128") else single

    def reference(self, p: Any, inputs: Arrays, i: int) -> Mapping[str, np.ndarray]:
        return {"y": self.exact(p, self._unit(p, inputs, i))}

    def scale(self, p: Any, inputs: Arrays, i: int) -> Mapping[str, np.ndarray]:
        unit = self._unit(p, inputs, i)
        return {"y": self._scale(p, unit, self.exact(p, unit))}

    def _scale(self, p: Any, unit: Arrays, exact: np.ndarray) -> np.ndarray:
        import numpy as np

        info = np.finfo(p.dtype)
        allowed = ROUNDINGS * float(info.eps) * self.rounding(p, unit, exact)
        return np.maximum(allowed / self.tolerance(p), float(info.smallest_normal))

    def _unit(self, p: Any, inputs: Arrays, i: int) -> Arrays:
        import numpy as np

        whole = {spec.name for spec in self.arrays(p) if spec.is_whole}
        units = {name: array if name in whole else array[i] for name, array in inputs.items()}
        return {
            name: np.asarray(unit, np.result_type(unit, np.float64))
            for name, unit in units.items()
        }

    def residual(self, p: Any, inputs: Arrays, outputs: Arrays, seed: int) -> np.ndarray:
        import numpy as np

        y = outputs["y"]
        errors = np.empty(len(y))
        with np.errstate(all="ignore"):
            for i in range(len(y)):
                error = self.error(p, self._unit(p, inputs, i), y[i], seed)
                if error is None:
                    error = np.inf if np.isfinite(y[i]).all() else 0.0
                errors[i] = error
        errors[np.isnan(errors)] = np.inf
        return errors

    def error(self, p: Any, unit: Arrays, y: np.ndarray, seed: int) -> float | None:
        """Compute "y" of one unit again: the largest error over what is allowed.

        None: it can't be finite. The default allows the tolerance of the rms of the other values.
        """
        import numpy as np

        expected = self.exact(p, unit)
        if not np.isfinite(expected).all():
            return None
        sizes = np.sort(np.abs(expected), axis=None)
        rms = np.sqrt(np.square(sizes[: max(1, sizes.size - 1)]).mean())
        size = np.maximum(rms, self._scale(p, unit, expected))
        return float((np.abs(y - expected) / (self.tolerance(p) * size)).max())


def power_rounding(p: Any, power: np.ndarray, rms: float) -> np.ndarray:
    """Return the `rounding` of squared amplitudes, each off by a rounding of `rms`."""
    import numpy as np

    eps = ROUNDINGS * float(np.finfo(p.dtype).eps)
    rounding: np.ndarray = power + 2 * np.sqrt(power) * rms + eps * rms**2
    return rounding


def transforms(context: KernelContext) -> tuple[Any, dict[str, Any]]:
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
