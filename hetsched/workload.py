"""What a workload is: the protocol that a plug-in implements, and the registry that finds it.

A declaration (name, params, arrays) imports neither NumPy nor a vendor library, so that the CLI
can derive its flags from it in a few milliseconds. Kernels live in files of their own that a
variant's `make` imports late. Plug-ins are found by the entry-point group ``hetsched.workloads``
and import only this module, NumPy and their own vendor libraries.
"""

from __future__ import annotations

import difflib
import functools
import importlib
import importlib.metadata
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from hetsched.dtypes import COMPLEX64, COMPLEX128, FLOAT32, FLOAT64, Dtype, DtypeChoice
from hetsched.errors import UsageError
from hetsched.memory import MemoryDemand
from hetsched.units import quoted

if TYPE_CHECKING:
    import numpy as np

Role = Literal["split", "resident", "out", "inout"]
Arrays = Mapping[str, Any]
"""Name -> array; the first axis of a split, out or inout array counts units."""
Kernel = Callable[[Arrays, Arrays], None]
"""kernel(inputs, outputs) computes all units that the arrays hold; it never allocates them."""

GROUP = "hetsched.workloads"

__all__ = [
    "COMPLEX64",
    "COMPLEX128",
    "FLOAT32",
    "FLOAT64",
    "ArraySpec",
    "Arrays",
    "Dtype",
    "DtypeChoice",
    "Kernel",
    "KernelContext",
    "Role",
    "Variant",
    "Workload",
    "convert",
    "find",
    "locate",
    "names",
]


@dataclass(frozen=True)
class ArraySpec:
    """One array of a workload.

    A split, out or inout array has shape (load, *unit_shape); a resident one has `unit_shape` and
    is whole on every device. An inout array is an input and, under the same name, an output.
    """

    name: str
    role: Role
    unit_shape: tuple[int, ...]
    dtype: str

    @property
    def is_input(self) -> bool:
        return self.role != "out"

    @property
    def is_output(self) -> bool:
        return self.role in ("out", "inout")


@dataclass(frozen=True)
class KernelContext:
    """Where a kernel runs: what `Variant.make` may use.

    Attributes
    ----------
    kind : "cpu" or "cuda"
    threads : int
        Threads that one call of the kernel may use.
    cache : str
        A folder for wisdom and the like; exists.
    xp : module or None
        The array module (NumPy or CuPy) of the arrays that the kernel gets.
    allocate : callable or None
        bytes -> device pointer object, for work areas; None: allocate as usual.
    say : callable
        Tells the user what takes long ("planning 512x512 ...").
    """

    kind: str
    threads: int = 1
    cache: str = ""
    xp: Any = None
    allocate: Callable[[int], Any] | None = None
    say: Callable[[str], None] = field(default=lambda text: None)


@dataclass(frozen=True)
class Variant:
    """One implementation of a workload on one kind of device.

    Attributes
    ----------
    name, version : str
        The library that really computes, and its version; both are part of the model's key.
    make : callable
        make(params, chunk, context) -> kernel for up to `chunk` units a call. May be slow (it may
        make FFT plans).
    threaded : bool
        A call uses `KernelContext.threads` threads, so it may run on a core team. Libraries that
        take their number of threads from the environment find it there.
    in_place : mapping
        Output name -> input name whose device buffer it reuses, on a device with memory of its
        own.
    """

    name: str
    version: str
    make: Callable[[Any, int, KernelContext], Kernel]
    in_place: Mapping[str, str] = field(default_factory=dict)
    threaded: bool = False


class Workload(ABC):
    """A divisible load: what its units are and how they are computed and checked.

    `Params` is a frozen msgspec Struct; each field becomes a flag of the CLI. `params` objects
    below are instances of it. Every method is pure.
    """

    name: str
    Params: type[msgspec.Struct]
    inputs: tuple[str, ...] = ("x",)
    """Names of the input arrays; an array that the user doesn't name is the only one."""

    @abstractmethod
    def load(self, p: Any) -> int:
        """Units of the whole job; >= 1. Raises UsageError when the parameters make no sense."""

    @abstractmethod
    def arrays(self, p: Any) -> Sequence[ArraySpec]:
        """All arrays, inputs first."""

    @abstractmethod
    def demand(self, p: Any, kind: str) -> MemoryDemand:
        """Bytes on a device of `kind` ("cpu", "cuda", "emulated"); `limit` is the engine's."""

    @abstractmethod
    def flops(self, p: Any, x: int) -> float:
        """Floating-point operations of x units."""

    @abstractmethod
    def variants(self, kind: str) -> Sequence[Variant]:
        """What is installed for `kind` ("cpu", "cuda"), the likely fastest first; may be empty."""

    @abstractmethod
    def generate(self, p: Any, seed: int, array: str, first: int, out: np.ndarray) -> None:
        """Fill `out` (count, *unit_shape) with units first.. of `array`; one stream a unit.

        For a resident array `out` is the whole array and `first` 0.
        """

    @abstractmethod
    def reference(self, p: Any, inputs: Arrays, i: int) -> Mapping[str, np.ndarray]:
        """Unit `i` of the given arrays computed in full by other means: output name -> unit."""

    @abstractmethod
    def residual(self, p: Any, inputs: Arrays, outputs: Arrays, seed: int) -> np.ndarray:
        """(count,) float64: a random-projection check of every unit; right if <= 1.

        Scaled by the workload so that 1 is its tolerance. NaN counts as wrong. A unit whose input
        isn't finite yields 0 if its output isn't all finite either, else infinity.
        """

    def tolerance(self, p: Any) -> float:
        """Largest allowed max|y - reference| / rms(reference less its largest value)."""
        return 1e-4

    def scale(self, p: Any, inputs: Arrays, i: int) -> Mapping[str, np.ndarray] | None:
        """Size of the terms that unit `i`'s values are sums of: output name -> like the unit.

        Where terms cancel, what is left may be nothing but their rounding: an error counts
        relative to this, if it is larger than the result. None: results don't cancel like that.
        """
        return None

    def infer(
        self, given: Mapping[str, Any], arrays: Mapping[str, tuple[tuple[int, ...], str]]
    ) -> Any:
        """Params from what the user gave and the shapes and dtypes of the input arrays.

        Parameters
        ----------
        given : mapping
            Params field -> value, only those that the user named.
        arrays : mapping
            Input name -> (shape, dtype name).

        Raises
        ------
        UsageError, DataError
            Something is missing, malformed or contradicts an array.
        """
        return convert(self, given)

    def resized(self, p: Any, load: int) -> Any:
        """`p` with a load of so many units and nothing else changed, to be measured with.

        By default the integer field that does this is looked for.

        Raises
        ------
        UsageError
            There is none: a workload whose load is said in another way has a `resized` of its own.
        """
        for name in p.__struct_fields__:
            if type(getattr(p, name)) is int and self._is_load(p, name, load):
                return msgspec.structs.replace(p, **{name: load})
        raise UsageError(f"{self.name} has no parameter that is its load, so it isn't measurable")

    def _is_load(self, p: Any, name: str, load: int) -> bool:
        """Whether the field `name` is the load, and has no influence on speed."""
        for units in (load, load + 1):
            other = msgspec.structs.replace(p, **{name: units})
            try:
                if self.load(other) != units or self.speed_key(other) != self.speed_key(p):
                    return False
            except UsageError:
                return False
        return True

    def speed_key(self, p: Any) -> str:
        """The parameters that change a unit's speed, as text; not those that change the load."""
        shapes = [
            f"{a.name}:{a.role}:{'x'.join(map(str, a.unit_shape))}:{a.dtype}"
            for a in self.arrays(p)
        ]
        return " ".join([*shapes, f"{self.flops(p, 1):g}"])


def convert(workload: Workload, given: Mapping[str, Any]) -> Any:
    """`given` as `workload.Params`, checked; one clear line when a value is wrong.

    Raises
    ------
    UsageError
    """
    known = workload.Params.__struct_fields__
    for key in given:
        if key not in known:
            raise UsageError(f"{workload.name} has no parameter {key!r}{_nearest(key, known)}")
    try:
        return msgspec.convert(dict(given), workload.Params, strict=False)
    except msgspec.ValidationError as error:
        raise UsageError(f"{workload.name}: {error}") from None


def _nearest(word: str, known: Sequence[str]) -> str:
    match = difflib.get_close_matches(word, known, n=1)
    return f"; did you mean {match[0]!r}?" if match else f"; there are: {', '.join(sorted(known))}"


def names() -> list[str]:
    """The workloads that are installed. Scans the entry points (tens of milliseconds)."""
    return sorted(point.name for point in importlib.metadata.entry_points(group=GROUP))


@functools.cache
def locate(name: str) -> str:
    """The ``module:qualname`` of the workload called `name`; such a reference stands for itself.

    Raises
    ------
    UsageError
        Unknown; the nearest name is said.
    """
    if ":" in name:
        return name
    points = importlib.metadata.entry_points(group=GROUP)
    for point in points:
        if point.name == name:
            return point.value
    raise UsageError(
        f"no workload {quoted(name)}{_nearest(name, [point.name for point in points])}"
    )


@functools.cache
def find(reference: str) -> Workload:
    """The workload behind a name or a ``module:qualname``; looked for once in a process.

    Raises
    ------
    UsageError
    """
    module, _, qualname = locate(reference).partition(":")
    try:
        found: Any = importlib.import_module(module)
        for part in qualname.split("."):
            found = getattr(found, part)
        if isinstance(found, type):
            found = found()
    except Exception as error:  # a plug-in's module may fail in any way there is
        why = f"{type(error).__name__}: {error}"
        raise UsageError(f"workload {quoted(reference)} can't be loaded: {why:.300}") from error
    if not isinstance(found, Workload):
        raise UsageError(f"workload {reference!r}: {found!r} is not a hetsched.workload.Workload")
    return found
