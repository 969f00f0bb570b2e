"""The protocol that every workload plug-in implements.

A declaration (name, params, arrays) imports neither NumPy nor a vendor library, so that the CLI
can derive its flags from it in a few milliseconds. Kernels are in separate files, imported late
by the `make` of a variant. Plug-ins are found by the entry-point group ``hetsched.workloads`` and
import only this module, NumPy and their own vendor libraries.
"""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import importlib.util
import math
import re
import string
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

import msgspec

from hetsched.dtypes import DtypeChoice
from hetsched.errors import DataError, UsageError, plug_in_error
from hetsched.memory import MemoryDemand
from hetsched.sparse import SparseMatrix
from hetsched.units import closest_hint, quoted

if TYPE_CHECKING:
    import numpy as np

INFERRED = {"inferred": True}
"""`extra` of the Meta of a parameter that always follows from others or the inputs: no flag."""

Role = Literal["split", "resident", "out", "inout", "whole-out"]
Arrays = Mapping[str, Any]
"""Name -> array; the first axis of a split, out or inout array counts units."""
Kernel = Callable[..., None]
"""kernel(inputs, outputs) computes all units that the arrays hold; it never allocates them.

It writes into the arrays of `outputs`, ``outputs["y"][...] = ...``; they can't be replaced.

One with the attribute `takes_range` is called with the first unit and their number, too. Its
attribute `units_per_call`, if it has one, is the most units that it passes to its library at
once, for `hetsched explain`.
"""


@dataclass(frozen=True)
class ArraySpec:
    """One array of a workload.

    A split, out or inout array has shape (load, *unit_shape); a resident one has `unit_shape` and
    is whole on every device. An inout array is an input and, under the same name, an output. A
    whole-out array is an output of shape `unit_shape`, of iterative workloads only.

    Attributes
    ----------
    pointers : str
        Of a resident array of an iterative workload that is in parts by row, as those of a CSR
        matrix are: the name of the array of load + 1 integers that has row i's entries from
        pointers[i] up to pointers[i + 1]; its own name, if it is that array. Kernels get the
        entries of own rows, and their count + 1 pointers, unchanged. Devices with their own memory
        hold no others.
    axis : int
        Of an output: where its axis of units is in a file. In memory it is the first.
    """

    name: str
    role: Role
    unit_shape: tuple[int, ...]
    dtype: str
    pointers: str = ""
    axis: int = 0

    @property
    def is_input(self) -> bool:
        return self.role not in ("out", "whole-out")

    @property
    def is_output(self) -> bool:
        return self.role in ("out", "inout", "whole-out")

    @property
    def is_whole(self) -> bool:
        """Whether the array isn't split between devices."""
        return self.role in ("resident", "whole-out")

    def shape(self, load: int) -> tuple[int, ...]:
        """Return the shape of the array of a job of `load` units."""
        return self.unit_shape if self.is_whole else (load, *self.unit_shape)

    def file_shape(self, load: int) -> tuple[int, ...]:
        """Return the shape of a new file with the array of a job of `load` units."""
        first, *rest = self.shape(load)
        return (*rest[: self.axis], first, *rest[self.axis :])


@dataclass(frozen=True)
class KernelContext:
    """The device that a kernel runs on, and the resources that `Variant.make` may use.

    Attributes
    ----------
    kind : "cpu", "cuda" or "opencl"
    threads : int
        Threads that one call of the kernel may use.
    cache : str
        An existing folder for FFT wisdom and the like.
    xp : module or None
        The array module (NumPy or CuPy) of the kernel's arrays.
    allocate : callable or None
        bytes -> device pointer object, for work areas; None: allocate normally.
    say : callable
        Reports a slow step to the user ("planning 512x512 ...").
    tunes : bool
        No job waits: `make` may take the time that `Variant.tuning` has named, and leaves what it
        finds out in `cache`.
    """

    kind: str
    threads: int = 1
    cache: str = ""
    xp: Any = None
    allocate: Callable[[int], Any] | None = None
    say: Callable[[str], None] = field(default=lambda text: None)
    tunes: bool = False


DISTRIBUTIONS = {"cupy": ("cupy-cuda12x", "cupy-cuda13x", "cupy")}
"""Module -> the distributions that contain it, where their names aren't the module's."""


@functools.cache
def version(module: str) -> str | None:
    """Return the version of an installed library; None without it."""
    if not module or importlib.util.find_spec(module) is None:
        return None
    for name in DISTRIBUTIONS.get(module, (module,)):
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return None


class Tuning(NamedTuple):
    """What a variant still has to find out about a kind of job before it computes at its best.

    Attributes
    ----------
    seconds : float
        That it takes, about; 0: nothing is left.
    is_needed : bool
        Without it `make` itself would take that long, so no job uses the variant before.
    """

    seconds: float = 0.0
    is_needed: bool = False


@dataclass(frozen=True)
class Variant:
    """One implementation of a workload on one kind of device.

    Attributes
    ----------
    name, version : str
        The library that computes, and its version; both are part of the key of its models.
    make : callable
        make(params, chunk, context) -> Kernel for up to `chunk` units a call; of an iterative
        workload: a StageKernel for each name of a stage. May be slow (it may make FFT plans).
    threaded : bool
        A call uses `KernelContext.threads` threads, so it may run on a core team. Libraries that
        take their number of threads from the environment find it there.
    tuning : callable or None
        tuning(params, threads, cache) -> Tuning, quickly; None: there is never anything to tune.
        A daemon has `make` tune when it is idle, `hetsched run` before a job, never for more than
        a tenth of the time that jobs of the kind have computed.
    """

    name: str
    version: str
    make: Callable[[Any, int, KernelContext], Any]
    threaded: bool = False
    tuning: Callable[[Any, int, str], Tuning] | None = None

    def tuning_left(self, params: Any, threads: int, cache: str) -> Tuning:
        """Return what `tuning` does, checked; nothing is left without it.

        Raises
        ------
        UsageError
            It returns something else.
        """
        if self.tuning is None:
            return Tuning()
        left: Any = self.tuning(params, threads, cache)
        is_tuning = isinstance(left, Tuning) and isinstance(left.seconds, int | float)
        if not is_tuning or not 0 <= left.seconds < math.inf:
            raise UsageError(f"variant {self.name}: tuning() returned {left!r:.100}, no Tuning")
        return Tuning(float(left.seconds), bool(left.is_needed))


class BaseWorkload(ABC):
    """What all workloads declare: parameters, units, arrays, variants.

    `Params` is a frozen msgspec Struct; each field becomes a flag of the CLI. `p` below is an
    instance of it. Every method is pure.
    """

    name: str
    Params: type[msgspec.Struct]
    inputs: tuple[str, ...] = ("x",)
    """Names of the input arrays. An array without a name is the only one that is needed."""
    optional_inputs: tuple[str, ...] = ()
    """Inputs, as users name them, that a job may do without, as a solver's first guess."""
    optional_outputs: tuple[str, ...] = ()
    """Outputs that aren't meant by a file without a name, as a number of steps."""
    composites: tuple[SparseMatrix, ...] = ()
    """Inputs that users give as one object; their arrays are among `inputs`."""
    takes_any_layout: bool = False
    """Kernels take arrays in memory with any strides; otherwise C-contiguous ones only."""
    in_threads: Literal["no", "yes", "only"] = "no"
    """Whether kernels release the interpreter's lock, take `KernelContext.threads` as their number
    of threads, and don't crash: then they may run in threads of the caller's process, on the
    caller's own arrays, in `hetsched.Local`. Otherwise these arrays are copied once."""
    writes_all: bool = False
    """Kernels write every element of their outputs, of iterative workloads also of the state
    before it is read. Otherwise it is zero at first, and never earlier data; that costs time."""

    in_place: Mapping[str, Mapping[str, str]] = {}
    """Kind of device -> output -> the input whose buffer it reuses in the memory of an
    accelerator, if both have one size, whichever variant computes; elsewhere it has its own."""

    @property
    def input_names(self) -> tuple[str, ...]:
        """Return the inputs as users name them."""
        return self.user_names(self.inputs)

    def user_names(self, arrays: Iterable[str]) -> tuple[str, ...]:
        """Return these inputs as users name them: a composite in place of its arrays."""
        owners = {array: whole.name for whole in self.composites for array in whole.arrays}
        return tuple(dict.fromkeys(owners.get(array, array) for array in arrays))

    @property
    def only_input(self) -> str | None:
        """Return the input that an array without a name is; None: there are several."""
        needed = [name for name in self.input_names if name not in self.optional_inputs]
        return needed[0] if len(needed) == 1 else None

    axes: Mapping[str, tuple[str, ...]] = {}
    """Array -> the parameters that are its axes, that of the units first. From these follow the
    defaults of `load`, `infer` and `arrays`; the first one of all is the load."""
    dtypes: DtypeChoice | None = None
    """Of the parameter `dtype`, which `infer` takes from the inputs in `axes`."""

    def load(self, p: Any) -> int:
        """Return the units of the whole job, >= 1. Raises UsageError for invalid parameters."""
        sizes = self._sizes()
        if not sizes:
            raise NotImplementedError(f"{self.name} declares neither axes nor load()")
        for name in sizes:
            if getattr(p, name) < 1:
                raise UsageError(f"{name}: {getattr(p, name)}, must be at least 1")
        if self.dtypes is not None:
            self.dtypes.parse(self.name, p.dtype)
        return int(getattr(p, sizes[0]))

    def _sizes(self) -> tuple[str, ...]:
        """Return the parameters in `axes`."""
        return tuple(dict.fromkeys(name for axes in self.axes.values() for name in axes))

    def arrays(self, p: Any) -> Sequence[ArraySpec]:
        """Return all arrays, inputs first.

        The default: those in `axes`, with a row for each unit, of the parameter `dtype` or else
        float64. Those that aren't in `inputs` are outputs.
        """
        dtype = getattr(p, "dtype", "float64")
        return [
            ArraySpec(
                name,
                "split" if name in self.inputs else "out",
                tuple(getattr(p, axis) for axis in axes[1:]),
                dtype,
            )
            for name, axes in self.axes.items()
        ]

    def demand(self, p: Any, kind: str) -> MemoryDemand:
        """Return the bytes needed on a device of `kind` ("cpu", "cuda", ...), without `limit`.

        The default: the arrays, and temporary ones as large as a chunk's inputs and outputs.
        """
        arrays = self.arrays(p)
        inputs = sum(array_bytes(a) for a in arrays if a.is_input and not a.is_whole)
        reused = self.in_place.get(kind, {})
        sizes = {a.name: array_bytes(a) for a in arrays}
        outputs = sum(
            sizes[a.name]
            for a in arrays
            if a.is_output
            and not a.is_whole
            and (a.name not in reused or sizes[a.name] != sizes[reused[a.name]])
        )
        return MemoryDemand(
            input_bytes=inputs,
            work_bytes=inputs + outputs,
            output_bytes=outputs,
            resident_bytes=sum(array_bytes(a) for a in arrays if a.is_whole),
        )

    def flops(self, p: Any, x: int) -> float:
        """Return the number of floating-point operations of x units.

        Only costs of emulated devices given as a rate need it. The default: one for each element.
        """
        return float(x * sum(math.prod(a.unit_shape) for a in self.arrays(p) if not a.is_whole))

    def kernel(self, p: Any, context: KernelContext) -> Any:
        """Return what a variant's `make` does, for arrays of the module ``context.xp``.

        For a workload with one source for all array modules, which need not declare `variants`.
        """
        raise NotImplementedError(f"{self.name} declares neither kernel() nor variants()")

    def variants(self, kind: str) -> Sequence[Variant]:
        """Return the installed variants for `kind` ("cpu", "cuda"), likely fastest first.

        The default: `kernel` with NumPy, and with CuPy where it is installed.
        """
        library = {"cpu": "numpy", "cuda": "cupy"}.get(kind, "")
        installed = version(library)
        if not installed:
            return ()
        return (Variant(library, installed, lambda p, _, context: self.kernel(p, context)),)

    def generate(self, p: Any, seed: int, array: str, first: int, out: np.ndarray) -> None:
        """Fill `out` (count, *unit_shape) with units of `array`, starting with unit `first`.

        Each unit has its own random stream, so that its values don't depend on `first`.

        For a resident array `out` is the whole array and `first` is 0. The default: standard
        normal numbers, converted to the array's dtype.
        """
        _streams().fill_units(seed, array, first, out)

    @property
    @abstractmethod
    def can_verify(self) -> bool:
        """Whether results can be checked; `--verify` is refused if not."""

    def infer(
        self, explicit: Mapping[str, Any], arrays: Mapping[str, tuple[tuple[int, ...], str]]
    ) -> Any:
        """Complete the params from the shapes and dtypes of the input arrays.

        Parameters
        ----------
        explicit : mapping
            Params field -> value, for the fields that the user set.
        arrays : mapping
            Input name -> (shape, dtype name).

        Raises
        ------
        UsageError, DataError
            A parameter is missing, malformed or contradicts an array.
        """
        return self._inferred(explicit, arrays, {})

    def _inferred(
        self,
        explicit: Mapping[str, Any],
        arrays: Mapping[str, tuple[tuple[int, ...], str]],
        sources: Mapping[str, str],
    ) -> Any:
        """Return the params by `axes` and `dtypes`.

        `sources`: sizes among the explicit values -> the input that they are from.
        """
        full = {key: value for key, value in explicit.items() if value is not None}
        known = {name: sources.get(name, "the job") for name in self._sizes() if name in full}
        for array, axes in self.axes.items():
            if array in arrays:
                _take_axes(full, known, array, axes, arrays[array])
        has_default = {f.name for f in msgspec.structs.fields(self.Params) if not f.required}
        for name in self._sizes():
            if name not in full and name not in has_default:
                raise UsageError(f"{self.name} needs {name}, or an input array that has it")
        if self.dtypes is not None:
            stored = {array: arrays[array][1] for array in self.axes if array in arrays}
            full |= self._dtype(full.get("dtype"), stored, self.dtypes)
        params = convert(self, full)
        try:
            self.load(params)
        except (Exception, SystemExit) as error:  # it isn't `infer` that fails
            raise plug_in_error(f"workload {self.name}: load", error) from error
        return params

    def _dtype(
        self, explicit: object, stored: Mapping[str, str], choice: DtypeChoice
    ) -> dict[str, str]:
        """Return the dtype: the explicit one, else the one that holds all inputs."""
        fitting = {array: choice.fitting(dtype) for array, dtype in stored.items()}
        for array, dtype in fitting.items():
            if dtype is None:
                takes = "bool, integers and float16 to float64"
                raise DataError(f"{array} holds {stored[array]}; {self.name} takes {takes}")
        if explicit is not None:
            return {"dtype": choice.parse(self.name, explicit).name}
        if not stored:
            return {}
        is_double = any(dtype.is_double for dtype in fitting.values() if dtype)
        return {"dtype": (choice.double if is_double else choice.single).name}

    def resized(self, p: Any, load: int) -> Any:
        """Return `p` with another load and nothing else changed, for measurements.

        The default finds the integer field that is the load. A workload without one overrides it.

        Raises
        ------
        UsageError
            No field is the load.
        """
        for name in p.__struct_fields__:
            if type(getattr(p, name)) is int and self._is_load(p, name, load):
                return msgspec.structs.replace(p, **{name: load})
        raise UsageError(f"{self.name} can't be measured: no parameter is its load")

    def _is_load(self, p: Any, name: str, load: int) -> bool:
        """Whether the field `name` is the load and doesn't affect speed."""
        for units in (load, load + 1):
            changed = msgspec.structs.replace(p, **{name: units})
            try:
                if self.load(changed) != units or self.speed_key(changed) != self.speed_key(p):
                    return False
            except UsageError:
                return False
        return True

    def paths(self, p: Any) -> Sequence[str]:
        """Return the files that kernels open themselves: a job doesn't go on with other ones."""
        return ()

    def speed_key(self, p: Any) -> str:
        """Return the parameters that affect the speed per unit, as text; not the load."""
        shapes = [
            f"{a.name}:{a.role}:{'x'.join(map(str, a.unit_shape))}:{a.dtype}"
            for a in self.arrays(p)
        ]
        return " ".join([*shapes, f"{self.flops(p, 1):g}"])


class Workload(BaseWorkload):
    """A divisible load: its units are independent of each other, and each is computed once."""

    @property
    def can_verify(self) -> bool:
        own = type(self)
        return own.reference is not Workload.reference and own.residual is not Workload.residual

    def reference(self, p: Any, inputs: Arrays, i: int) -> Mapping[str, np.ndarray]:
        """Compute unit `i` in full by an independent method: output name -> unit."""
        raise NotImplementedError

    def residual(self, p: Any, inputs: Arrays, outputs: Arrays, seed: int) -> np.ndarray:
        """Return the error of every unit by random projection, (count,) float64.

        Scaled by the workload: up to 1 is correct. NaN counts as wrong. A unit with a non-finite
        input yields 0 if its output has a non-finite value too, else infinity.
        """
        raise NotImplementedError

    def tolerance(self, p: Any) -> float:
        """Return the limit of max|y - reference| / rms(reference less its largest value)."""
        return 1e-4

    def scale(self, p: Any, inputs: Arrays, i: int) -> Mapping[str, np.ndarray] | None:
        """Return the magnitude of the terms summed in unit `i`: output name -> array.

        Where terms cancel, the result may be mere rounding error, so errors are relative to this
        magnitude if it exceeds the result. None: terms don't cancel.
        """
        return None


def array_bytes(array: Any) -> int:
    """Return the bytes of one unit, or of an array that isn't split."""
    bits = array.dtype.lstrip(string.ascii_lowercase) or "8"  # bool; not NumPy: it is slow to load
    return int(math.prod(array.unit_shape)) * int(bits) // 8


def _take_axes(
    full: dict[str, Any],
    known: dict[str, str],
    array: str,
    axes: tuple[str, ...],
    stored: tuple[tuple[int, ...], str],
) -> None:
    """Complete the sizes `full` by an input's; `known`: what each of them is from."""
    shape, dtype = stored
    description = f"{array} holds {dtype} of shape {tuple(shape)}"
    if len(shape) != len(axes):
        count = {1: "one axis", 2: "two axes", 3: "three axes"}.get(len(axes), f"{len(axes)} axes")
        raise DataError(f"{description}; it needs {count}, {' x '.join(axes)}")
    for name, size in zip(axes, shape, strict=True):
        if size < 1:
            raise DataError(f"{description}: it is empty; nothing to compute")
        if str(full.setdefault(name, size)) != str(size):
            if known[name] == array:
                raise DataError(f"{description}; it must be {' x '.join(axes)}")
            raise DataError(f"{description}, so {name} is {size}; {known[name]} says {full[name]}")
        known.setdefault(name, array)


def _streams() -> Any:
    """Import it late: it needs NumPy."""
    return importlib.import_module(f"{__package__}.streams")


class KernelArrays(Mapping[str, Any]):
    """Name -> array. Not a dict, which can be changed in a dozen ways.

    Another array in its place would be lost, and whatever is in the output's memory would be taken
    for the result.
    """

    def __init__(self, arrays: Mapping[str, Any]) -> None:
        self._arrays = arrays

    def __getitem__(self, name: str) -> Any:
        return self._arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    def __setitem__(self, name: str, value: Any) -> None:
        if self.get(name) is not value:  # it is after ``outputs["y"] += 1``
            raise TypeError(
                f"a kernel can't replace the array {name!r}: write into it,"
                f" outputs[{name!r}][...] = ..."
            )


# ---- parameters

TYPE_NAMES = {
    "int": "a whole number", "float": "a number", "bool": "true or false", "str": "text",
}  # fmt: skip
"""Types of parameters, as error messages call them."""

LIMITS = {">": "above", ">=": "at least", "<": "below", "<=": "at most"}
MAX_FLOAT = sys.float_info.max
"""The largest finite number: a limit that refuses infinity and NaN."""

_first_use = threading.Lock()


def convert(workload: BaseWorkload, values: Mapping[str, Any]) -> Any:
    """Convert `values` to `workload.Params`.

    Raises
    ------
    UsageError
        A field is unknown, missing or has a wrong value.
    """
    fields = workload.Params.__struct_fields__
    for key in values:
        if key not in fields:
            hint = closest_hint(key, fields)
            raise UsageError(f"{workload.name} has no parameter {quoted(key)}{hint}")
    _describe(workload.Params)
    try:
        return msgspec.convert(dict(values), workload.Params, strict=False)
    except msgspec.ValidationError as error:
        raise UsageError(_conversion_error(workload, values, str(error))) from None


def sizes_as_text(workload: BaseWorkload, values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return `values` with (4, 64, 64) as "4x64x64" where a parameter is text."""
    lists = [name for name, value in values.items() if isinstance(value, list | tuple)]
    if not lists:
        return values
    hints = get_type_hints(workload.Params)
    texts = {
        name: "x".join(map(str, values[name]))
        for name in lists
        if get_origin(hints.get(name)) is not tuple
        and str in (hints.get(name), *get_args(hints.get(name)))
    }
    return {**values, **texts}


def decode_params(workload: BaseWorkload, encoded: bytes) -> Any:
    """Return the `workload.Params` that are `encoded` as JSON. Raises msgspec.MsgspecError."""
    _describe(workload.Params)
    return msgspec.json.decode(encoded, type=workload.Params)


@functools.lru_cache(maxsize=256)  # clients choose the workloads
def _describe(params: type[msgspec.Struct]) -> None:
    """Let msgspec describe `params` to itself, on one thread.

    It does so at a type's first use, and publishes the description before it is complete: a second
    thread that converts meanwhile reads null pointers.
    """
    with _first_use:
        msgspec.json.Decoder(params)


def _conversion_error(workload: BaseWorkload, values: Mapping[str, Any], text: str) -> str:
    """msgspec's `text`, in terms of the parameters."""
    missing = re.fullmatch(r"Object missing required field `(\w+)`", text)
    if missing:
        return f"{workload.name} needs {missing[1]}"
    wrong = re.fullmatch(r"Expected `(\w+)`, got `\w+` - at `\$\.(\w+)`", text)
    if wrong:
        kind, name = TYPE_NAMES.get(wrong[1], wrong[1]), wrong[2]
        return f"{name}: {quoted(values[name])} is not {kind}"
    limit = re.fullmatch(r"Expected `\w+` (>=?|<=?) (\S+) - at `\$\.(\w+)`", text)
    if limit:
        value = quoted(values[limit[3]]).strip("'")
        bound = float(limit[2])
        range_ = "finite" if abs(bound) == MAX_FLOAT else f"{LIMITS[limit[1]]} {bound:g}"
        return f"{limit[3]}: {value}, must be {range_}"
    unknown = re.fullmatch(r"Invalid enum value .* - at `\$\.(\w+)`", text, re.DOTALL)
    if unknown:
        name = unknown[1]
        choices = [str(choice) for choice in get_args(get_type_hints(workload.Params)[name])]
        return f"{name}: {quoted(values[name])}{closest_hint(values[name], choices)}"
    return f"{workload.name}: {text}"
