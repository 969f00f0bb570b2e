"""What is known of a job before it runs.

`Declaration`: what the code of its workload says about one kind of job, converted and checked.
`ResolvedJob`: that, and the arrays, files and devices of one job.
"""

from __future__ import annotations

import itertools
import math
import operator
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeVar, get_args

import msgspec
import numpy as np

from hetsched import errors
from hetsched.dtypes import NUMERIC
from hetsched.engine.threads import enter
from hetsched.errors import plug_in_error
from hetsched.iterations.home import PARTIALS, Part, partials_shape, stages_of, state_shape
from hetsched.iterations.saved_state import SAVED, saved_shapes
from hetsched.job import MAX_ITERATIONS, ArenaRef, FileOut, JobSpec, Schedule
from hetsched.memory import MemoryDemand
from hetsched.sparse import Shapes
from hetsched.store import output_files
from hetsched.transport.control import CONTROL, control_words
from hetsched.transport.device_messages import StoredArray
from hetsched.units import NUMBER_LIMIT, Ranges
from hetsched.workload import (
    ArraySpec,
    BaseWorkload,
    Iterative,
    Reduction,
    StateArray,
    Variant,
    find,
    locate,
)
from hetsched.workload.protocol import Role, decode_params, sizes_as_text
from hetsched.workload.registry import note_sources

_MAX_DESCRIPTORS = 1 << 31
"""A descriptor's number is a C int."""
MAX_SHOWN = 100
"""Characters of a value in an error message."""
MAX_TEXT = 10_000
"""Characters of a name or key that a plug-in chooses: lists and models keep it. Arbitrary."""

Layout = TypeVar("Layout", ArraySpec, StateArray, Reduction)


@dataclass(frozen=True)
class IterativeDeclaration:
    """State, reductions and limits of an iterative workload with certain parameters."""

    state: tuple[StateArray, ...]
    reductions: tuple[Reduction, ...]
    granule: int  # Rows that are never divided between devices
    max_iterations: int
    must_converge: bool  # A job that ends by `max_iterations` has failed
    # For rows that devices save now and then; without them rows never stay in a GPU
    saved: tuple[ArraySpec, ...] = ()
    # Output -> the state array whose rows after iteration `max_iterations` it is
    results: Mapping[str, StateArray] = field(default_factory=dict)

    def work_arrays(self, load: int, slots: int) -> tuple[ArraySpec, ...]:
        """Return the arrays that only devices see, without `saved`; a job has `slots` devices."""
        return (
            *(
                ArraySpec(each.name, "resident", state_shape(each, load), each.dtype)
                for each in self.state
            ),
            *(
                ArraySpec(PARTIALS + r.name, "resident", partials_shape(r, slots), r.dtype)
                for r in self.reductions
            ),
            ArraySpec(CONTROL, "resident", (control_words(slots),), "int32"),
        )


@dataclass(eq=False)
class Declaration:
    """A workload, and what it says of a job with these parameters and shapes of inputs."""

    workload: BaseWorkload
    reference: str  # module:qualname of the workload, for device processes
    params: Any
    load: int
    specs: Sequence[ArraySpec]  # All its arrays
    speed_key: str = ""  # What the parameters say about a unit's speed, for the keys of models
    encoded_params: bytes = b""  # As JSON
    source: str = ""  # Stamp of the workload's module as it was loaded
    shapes: Shapes = field(default_factory=dict)
    iterative: IterativeDeclaration | None = None  # None: it is computed in one pass


@dataclass(eq=False)
class ResolvedJob(Declaration):
    """A job bound to arrays and devices; it can run while its files are open."""

    declaration: Declaration | None = None  # Shared by jobs of one kind
    devices: tuple[str, ...] = ()  # That it may use
    # The `key` of an input is a segment's id, the `file_key` of a file, or LOADED_KEY
    inputs: dict[str, StoredArray] = field(default_factory=dict)
    generate: list[ArraySpec] = field(default_factory=list)
    into: dict[str, ArenaRef | None] = field(default_factory=dict)  # None: a new segment
    # It computes in threads of this process, on arrays that its caller has lent
    in_threads: bool = False
    targets: dict[str, FileOut] = field(default_factory=dict)  # Outputs that become files
    outputs: dict[str, output_files.OutputFile] = field(default_factory=dict)
    files: set[int] = field(default_factory=set)  # Descriptors of inputs
    loaded: dict[str, np.ndarray] = field(default_factory=dict)  # From files that aren't .npy
    notes: list[str] = field(default_factory=list)  # For the report
    measure: dict[str, str] = field(default_factory=dict)
    schedule: Schedule = "best"
    memory_limit: int | None = None  # Bytes of each device's own memory that it may use
    converted: bool = False  # An input's dtype or order differs from the kernels'
    in_files: bool = False  # An array is stored in a file; still true after `close`
    # Identifies the job and its inputs beside finished parts of its outputs; "": these aren't kept
    parts_identity: str = ""
    finished: Ranges = ()  # Units that an earlier daemon has completed
    # What was found when it was submitted; paths with their links resolved
    claims: tuple[output_files.OutputClaim, ...] = ()
    input_paths: tuple[str, ...] = ()
    input_bytes: int = 0
    checkpoint: str = ""

    @property
    def kind(self) -> str:
        return f"{self.workload.name} {self.speed_key}".strip()

    @property
    def storage(self) -> str:
        """The location of the arrays, for the keys of models."""
        if self.iterative is not None:
            return "memory"
        libraries = {f" {each.library}".partition(":")[0] for each in self.inputs.values()}
        storage = f"file{''.join(sorted(libraries)).rstrip()}" if self.in_files else "memory"
        return f"{storage}, converted" if self.converted else storage

    @property
    def results_in_state(self) -> set[str]:
        """Outputs for which the memory of a state array serves."""
        results = () if self.iterative is None else self.iterative.results
        return {name for name in results if self.into.get(name, name) is None}

    def prepare(self, sync: bool = True) -> tuple[output_files.PreparedOutput, ...]:
        """Complete the output files under hidden names, all or none."""
        prepared: list[output_files.PreparedOutput] = []
        try:
            for output in self.outputs.values():
                prepared.append(output.prepare(sync))
        except BaseException:
            output_files.discard_all(prepared)
            raise
        return tuple(prepared)

    def close(self, *, keeps_parts: bool = False) -> None:
        """Close the input files; discard outputs, unless it `keeps_parts` for the next daemon.

        It may block.
        """
        enter(f"closing the files of a job of {self.workload.name}")
        self.loaded.clear()
        for output in self.outputs.values():
            if keeps_parts and self.parts_identity:
                output.close()
            else:
                output.discard()
        while self.files:
            os.close(self.files.pop())


_file_numbers = itertools.count()


def file_key(fd: int) -> int:
    """Return a new key for an open file: negative, unlike a segment's id, and never used again."""
    # A descriptor's number is reused while device processes still have the old file attached.
    return -1 - (next(_file_numbers) * _MAX_DESCRIPTORS + fd)


def fd_of_key(key: int) -> int | None:
    return (-1 - key) % _MAX_DESCRIPTORS if key < 0 else None


def is_plain(stored: StoredArray, spec: ArraySpec) -> bool:
    """Return whether an input is in the arena, in the kernels' dtype, order and alignment."""
    dtype = np.dtype(spec.dtype)
    return (
        stored.key >= 0
        and not stored.lent
        and np.dtype(stored.dtype) == dtype
        and stored.order == "C"
        and stored.offset % dtype.itemsize == 0
    )


def array_bytes(spec: ArraySpec, load: int) -> int:
    return math.prod(spec.shape(load)) * np.dtype(spec.dtype).itemsize


# ---- what the code of a workload says
#
# It may be slow or hang, so it never runs on the event loop. Its methods are pure, so that for a
# job like an earlier one their results are known. Whatever it returns is checked here.


def load_workload(name: str) -> BaseWorkload:
    enter(f"loading the workload {name:.100}")
    workload = find(name)
    note_sources(name)
    if type(workload.name) is not str:  # a subclass has methods of its own, and can't be sent
        raise _wrong(f"the name of workload {name:.100}", workload.name, "a str")
    _text(f"the name of workload {name:.100}", workload.name)
    return workload


def declare(spec: JobSpec, workload: BaseWorkload, shapes: Shapes) -> Declaration:
    name = workload.name
    enter(f"the code of the workload {name}", is_interruptible=True)
    with plug_in(name, "infer"):
        params = workload.infer(sizes_as_text(workload, spec.params), shapes)
        encoded = _encoded_params(workload, params)
    with plug_in(name, "load"):
        load = _count(name, "load()", workload.load(params))
    with plug_in(name, "arrays"):
        declared = workload.arrays(params)
        arrays = tuple(_layout(f"{name}: arrays()", array, ArraySpec) for array in declared)
    with plug_in(name, "speed_key"):
        speed_key = _text(f"{name}: speed_key()", workload.speed_key(params))
    with plug_in(name, "the declaration of its iterations"):
        iterative = declare_iterative(workload, params)
    reference = locate(spec.workload)
    return Declaration(
        workload=workload,
        reference=reference,
        source=note_sources(reference),
        shapes=shapes,
        params=params,
        encoded_params=encoded,
        load=load,
        speed_key=speed_key,
        specs=arrays,
        iterative=iterative,
    )


def declared_demand(workload: BaseWorkload, params: Any, kind: str) -> MemoryDemand:
    """Return what units need on a device of `kind`. Runs code of the plug-in."""
    with plug_in(workload.name, "demand"):
        try:
            demand = workload.demand(params, kind)
        except errors.UsageError as error:  # of MemoryDemand: bytes that are no finite number
            text = errors.text_of(error)
            raise errors.DataError(f"{workload.name}: demand(): {text}") from error
        if not isinstance(demand, MemoryDemand):
            raise _wrong(f"{workload.name}: demand()", demand, "a MemoryDemand")
        return demand.monotone()


def declared_variants(workload: BaseWorkload, kind: str) -> tuple[Variant, ...]:
    """Return the installed variants for devices of `kind`. Runs code of the plug-in."""
    found = []
    with plug_in(workload.name, "variants"):
        for variant in workload.variants(kind):
            if not isinstance(variant, Variant):
                raise _wrong(f"{workload.name}: variants()", variant, "a Variant")
            name = _text(f"{workload.name}: the name of a variant", variant.name)
            version = _text(f"{workload.name}: the version of a variant", variant.version)
            found.append(replace(variant, name=name, version=version))
    return tuple(found)


@contextmanager
def plug_in(workload: str, method: str) -> Iterator[None]:
    """Make what the code of a plug-in raises, SystemExit too, an error of its job."""
    try:
        yield
    except BaseException as error:
        raise plug_in_error(f"workload {workload}: {method}", error) from error


def whole_number(what: str, value: Any) -> int:
    """Return `value` as an int that messages and the journal can hold."""
    try:
        if isinstance(value, bool | np.bool_):
            raise TypeError
        number = operator.index(value)
    except Exception:
        raise _wrong(what, value, "a whole number") from None
    if not -NUMBER_LIMIT <= number < NUMBER_LIMIT:
        raise errors.DataError(
            f"{what} is a number of {number.bit_length()} bits; the maximum is 63"
        )
    return number


def _text(what: str, value: Any) -> str:
    """Return text as a plain str: one of a subclass, such as NumPy's, can't be sent."""
    if not isinstance(value, str):
        raise _wrong(what, value, "text")
    text = str.__str__(value)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise _wrong(what, text, "text that UTF-8 can encode") from None
    if len(text) > MAX_TEXT:
        raise errors.DataError(f"{what} has {len(text)} characters; the maximum is {MAX_TEXT}")
    return text


def _wrong(what: str, value: Any, expected: str) -> errors.DataError:
    try:
        shown = ascii(value)[:MAX_SHOWN]
    except BaseException:  # of the plug-in's __repr__
        shown = f"an object of class {type(value).__name__}"
    return errors.DataError(f"{what} is {shown}, not {expected}")


def _encoded_params(workload: BaseWorkload, params: Any) -> bytes:
    if not isinstance(params, workload.Params):
        raise _wrong(f"{workload.name}: infer()", params, f"a {workload.Params.__name__}")
    for name in params.__struct_fields__:
        value = getattr(params, name)
        if isinstance(value, int) and not -NUMBER_LIMIT <= value < NUMBER_LIMIT:
            bits = value.bit_length()
            raise errors.UsageError(f"{name}: a number of {bits} bits; the maximum is 63")
    try:
        encoded = msgspec.json.encode(params)
        decode_params(workload, encoded)
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        raise errors.DataError(
            f"{workload.name}: its parameters can't be sent to a device process, {text:.200}"
        ) from error
    return encoded


def _layout(what: str, value: Any, kind: type[Layout]) -> Layout:
    """Return a declared array or reduction as one of our class, with plain numbers and text."""
    if not isinstance(value, kind):
        raise _wrong(what, value, f"of class {kind.__name__}")
    name = _text(
        f"{what}: the name of {'a reduction' if kind is Reduction else 'an array'}", value.name
    )
    axes = "shape" if kind is Reduction else "unit_shape"
    shape = tuple(whole_number(f"{what}: {axes} of {name}", n) for n in getattr(value, axes))
    if min(shape, default=1) < 0:
        raise _wrong(f"{what}: {axes} of {name}", shape, "at least 0 in each axis")
    given = {field.name: getattr(value, field.name) for field in fields(kind)}
    declared: dict[str, Any] = {
        key: _text(f"{what}: {key} of {name}", each) if isinstance(each, str) else each
        for key, each in given.items()
    }
    declared |= {axes: shape, "dtype": _dtype(f"{what}: dtype of {name}", value.dtype)}
    if isinstance(value, ArraySpec) and declared["role"] not in get_args(Role):
        raise _wrong(f"{what}: the role of {name}", value.role, " or ".join(get_args(Role)))
    if isinstance(value, StateArray):
        declared["halo"] = whole_number(f"{what}: halo of {name}", value.halo)
    return kind(**declared)


def _dtype(what: str, dtype: Any) -> str:
    try:
        found = np.dtype(dtype)
    except Exception:
        raise _wrong(what, dtype, "a dtype") from None
    if found.kind not in NUMERIC:
        raise _wrong(what, dtype, "a dtype of numbers")
    return str.__str__(dtype) if isinstance(dtype, str) else found.name


# ---- iterations


def declare_iterative(workload: BaseWorkload, params: Any) -> IterativeDeclaration | None:
    if not isinstance(workload, Iterative):
        return None
    name = workload.name
    state = tuple(_layout(f"{name}: state()", each, StateArray) for each in workload.state(params))
    reductions = workload.reductions(params)
    iterations = _count(name, "max_iterations()", workload.max_iterations(params))
    if iterations > MAX_ITERATIONS:
        raise errors.UsageError(
            f"{name}: {iterations} iterations; the maximum is {MAX_ITERATIONS} (continue a longer"
            " run with --resume)"
        )
    _check_names(workload, params, state)
    saved = saved_shapes(workload, params)
    return IterativeDeclaration(
        state,
        tuple(_layout(f"{name}: reductions()", each, Reduction) for each in reductions),
        _count(name, "granule()", workload.granule(params)),
        iterations,
        bool(workload.must_converge(params)),
        tuple(ArraySpec(SAVED + array, "resident", *layout) for array, layout in saved.items()),
        _results(workload, params, state),
    )


def _count(workload: str, method: str, value: Any) -> int:
    number = whole_number(f"{workload}: {method}", value)
    if number < 1:
        raise errors.UsageError(f"{workload}: {method} is {number}; it must be at least 1")
    return number


def _check_names(workload: Iterative, params: Any, state: Sequence[StateArray]) -> None:
    """Check that neither arrays nor the parts of reductions take each other's place."""
    arrays = workload.arrays(params)
    names = [*(array.name for array in arrays), *(array.name for array in state)]
    if len({*names, CONTROL}) <= len(names):
        raise errors.UsageError(
            f"{workload.name}: two arrays have the same name ({', '.join(names)})"
        )
    if any(array.role == "inout" for array in arrays):
        raise errors.UsageError(
            f"{workload.name}: an iterative workload has no inout arrays, since an iteration may"
            " be repeated; declare an input and an output"
        )
    for part in Part:
        # A device may still combine the parts of a stage when the next one begins.
        names = [name for stage in stages_of(workload, params, part) for name in stage.reductions]
        for name in names:
            if names.count(name) > 1:
                raise errors.UsageError(
                    f"{workload.name}: reduction {name!r} belongs to two stages"
                )


def _results(
    workload: Iterative, params: Any, state: Sequence[StateArray]
) -> Mapping[str, StateArray]:
    """Return the outputs that are in the memory of state arrays."""
    outputs = {array.name: array for array in workload.arrays(params) if array.role == "out"}
    results: dict[str, StateArray] = {}
    for array in state:
        if not array.result:
            continue
        output = outputs.pop(array.result, None)
        layout = (array.unit_shape, array.dtype)
        if output is None or (output.unit_shape, output.dtype) != layout:
            raise errors.UsageError(
                f"{workload.name}: {array.name!r} can't be the result {array.result!r}: there is"
                " no output of this name with its unit_shape and dtype, or another array is it"
            )
        results[array.result] = array
    return results if workload.has_fixed_length(params) else {}
