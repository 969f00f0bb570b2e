"""What the code of a plug-in says about one kind of job, converted and checked.

This code may be slow or hang, so it never runs on the event loop. Its methods are pure, so that
for a job like an earlier one their results are known: it is admitted on the loop. Whatever a
plug-in returns is checked here: the rest of the engine relies on whole numbers, on finite bytes
and on text that can be encoded.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, get_args

import msgspec
import numpy as np

from hetsched.engine.threads import Step
from hetsched.errors import DataError, HetschedError, UsageError
from hetsched.iterations.home import Part, stages_of, state_shape
from hetsched.iterations.partials import partials_shape
from hetsched.iterations.saved_state import saved_shapes
from hetsched.job import ArenaRef, FileOut, FileRef, JobSpec
from hetsched.memory import MemoryDemand
from hetsched.plug_in_errors import plug_in_error
from hetsched.transport.control import control_words
from hetsched.units import NUMBER_LIMIT, format_bytes
from hetsched.workload import (
    ArraySpec,
    BaseWorkload,
    Iterative,
    Reduction,
    Stage,
    StateArray,
    Variant,
    find,
    locate,
)
from hetsched.workload.conversion import decode_params
from hetsched.workload.protocol import Role
from hetsched.workload.sources import note_sources

BYTES_PER_DECLARATION = 1024
"""Estimate for a declaration besides its parameters, which are as long as the key."""
MAX_SHOWN = 100
"""Characters of a value in an error message."""

Shapes = Mapping[str, tuple[tuple[int, ...], str]]
"""Input name -> (shape, dtype name)."""


@dataclass(frozen=True, eq=False)
class Declaration:
    """A workload and its parameters, load and arrays for inputs of these shapes.

    Attributes
    ----------
    reference : str
        module:qualname of the workload, for device processes.
    source : str
        Stamp of its module as it was loaded.
    encoded_params : bytes
        `params` as JSON.
    speed_key : str
        What the parameters say about a unit's speed, for the keys of models.
    iterative : IterativeDeclaration or None
        None: the load is computed in one pass.
    """

    workload: BaseWorkload
    reference: str
    source: str
    shapes: Shapes
    params: Any
    encoded_params: bytes
    load: int
    speed_key: str
    specs: tuple[ArraySpec, ...]
    iterative: IterativeDeclaration | None = None


def load_workload(name: str, step: Step) -> BaseWorkload:
    """Return the workload `name`; the first time its module is imported. Raises UsageError."""
    step.enter(f"loading the workload {name:.100}")
    workload = find(name)
    note_sources(name)
    _text(f"the name of workload {name:.100}", workload.name)
    return workload


def declare(spec: JobSpec, workload: BaseWorkload, shapes: Shapes, step: Step) -> Declaration:
    """Derive parameters, load and arrays from the request and the shapes of its inputs."""
    name = workload.name
    step.enter(f"the code of the workload {name}", is_interruptible=True)
    with plug_in(name, "infer"):
        params = workload.infer(spec.params, shapes)
    encoded = _encoded_params(workload, params)
    with plug_in(name, "load"):
        load = whole_number(f"{name}: load()", workload.load(params))
    if load < 1:
        raise UsageError(f"{name}: a load of {load} units; it must be at least 1")
    with plug_in(name, "arrays"):
        arrays = tuple(_array(name, array) for array in workload.arrays(params))
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
        except UsageError as error:  # of MemoryDemand: bytes that are no finite number
            raise DataError(f"{workload.name}: demand(): {error}") from error
    if not isinstance(demand, MemoryDemand):
        raise _wrong(f"{workload.name}: demand()", demand, "a MemoryDemand")
    return demand.monotone()


def declared_variants(workload: BaseWorkload, kind: str) -> tuple[Variant, ...]:
    """Return the installed variants for devices of `kind`. Runs code of the plug-in."""
    with plug_in(workload.name, "variants"):
        variants = tuple(workload.variants(kind))
    for variant in variants:
        if not isinstance(variant, Variant):
            raise _wrong(f"{workload.name}: variants()", variant, "a Variant")
        _text(f"{workload.name}: the name of a variant", variant.name)
        _text(f"{workload.name}: the version of a variant", variant.version)
    return variants


@contextmanager
def plug_in(workload: str, method: str) -> Iterator[None]:
    """Make what the code of a plug-in raises, whatever it is, an error of its job.

    SystemExit is one, too: it must not end the thread that the engine lends to the plug-in.
    """
    try:
        yield
    except HetschedError:
        raise
    except BaseException as error:
        raise plug_in_error(f"workload {workload}: {method}", error) from error


def whole_number(what: str, value: Any) -> int:
    """Return `value` as an int that messages and the journal can hold. Raises DataError."""
    try:
        if isinstance(value, bool | np.bool_):
            raise TypeError
        number = operator.index(value)
    except Exception:
        raise _wrong(what, value, "a whole number") from None
    if not -NUMBER_LIMIT <= number < NUMBER_LIMIT:
        raise DataError(f"{what} is a number of {number.bit_length()} bits; the maximum is 63")
    return number


def _text(what: str, value: Any) -> str:
    """Return `value`, which is text that can be encoded. Raises DataError."""
    if not isinstance(value, str):
        raise _wrong(what, value, "text")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise _wrong(what, value, "text that UTF-8 can encode") from None
    return value


def _wrong(what: str, value: Any, expected: str) -> DataError:
    try:
        shown = ascii(value)[:MAX_SHOWN]
    except BaseException:  # of the plug-in's __repr__
        shown = f"an object of class {type(value).__name__}"
    return DataError(f"{what} is {shown}, not {expected}")


def _encoded_params(workload: BaseWorkload, params: Any) -> bytes:
    """Return parameters as device processes get them. Raises UsageError, DataError."""
    if not isinstance(params, workload.Params):
        raise _wrong(f"{workload.name}: infer()", params, f"a {workload.Params.__name__}")
    for name in params.__struct_fields__:
        value = getattr(params, name)
        if isinstance(value, int) and not -NUMBER_LIMIT <= value < NUMBER_LIMIT:
            bits = value.bit_length()
            raise UsageError(f"{name}: a number of {bits} bits; the maximum is 63")
    try:
        encoded = msgspec.json.encode(params)
        decode_params(workload, encoded)
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        raise DataError(
            f"{workload.name}: its parameters can't be sent to a device process, {text:.200}"
        ) from error
    return encoded


def _array(workload: str, array: Any) -> ArraySpec:
    """Return one array with plain numbers and names. Raises DataError."""
    if not isinstance(array, ArraySpec):
        raise _wrong(f"{workload}: arrays()", array, "an ArraySpec")
    name = _text(f"{workload}: the name of an array", array.name)
    if array.role not in get_args(Role):
        raise _wrong(f"{workload}: the role of {name}", array.role, " or ".join(get_args(Role)))
    shape = tuple(whole_number(f"{workload}: unit_shape of {name}", n) for n in array.unit_shape)
    if min(shape, default=1) < 0:
        raise _wrong(f"{workload}: unit_shape of {name}", shape, "at least 0 in each axis")
    return ArraySpec(name, array.role, shape, _dtype(f"{workload}: dtype of {name}", array.dtype))


def _dtype(what: str, dtype: Any) -> str:
    """Return the name of a dtype of numbers. Raises DataError."""
    try:
        found = np.dtype(dtype)
    except Exception:
        raise _wrong(what, dtype, "a dtype") from None
    if found.hasobject or found.itemsize == 0:
        raise _wrong(what, dtype, "a dtype of numbers")
    return dtype if isinstance(dtype, str) else found.name


def has_files(spec: JobSpec) -> bool:
    """Return whether an input or output of `spec` is a file, or it names a checkpoint."""
    refs = (*spec.inputs.values(), *spec.outputs.values())
    has_checkpoint = bool(spec.checkpoint or spec.resume)
    return has_checkpoint or any(isinstance(ref, FileRef | FileOut) for ref in refs)


def declaration_key(spec: JobSpec) -> bytes:
    """Return all that determines the declaration of a job without files."""
    arrays = [
        (name, ref.shape, ref.dtype)
        for name, ref in spec.inputs.items()
        if isinstance(ref, ArenaRef)
    ]
    return msgspec.msgpack.encode((spec.workload, spec.params, arrays))


def declaration_bytes(key: bytes) -> int:
    """Estimate the bytes of a declaration with its key."""
    return 2 * len(key) + BYTES_PER_DECLARATION


# ---- iterations

CONTROL = "control"
"""The name of the array in which devices wait for each other."""
MAX_ITERATIONS = 2_000_000_000
"""Devices count iterations in 32 bits."""


@dataclass(frozen=True)
class WorkArray:
    """An array that the engine allocates and only devices see."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize


@dataclass(frozen=True)
class IterativeDeclaration:
    """State, reductions and limits of an iterative workload with certain parameters.

    Attributes
    ----------
    granule : int, rows
        Never divided between devices.
    must_converge : bool
        A job that ends by `max_iterations` has failed.
    saved : mapping
        Name -> shape and dtype of what devices save now and then, if one has its own memory.
    results : mapping
        Output -> the state array whose rows after the last iteration it is. That is the one with
        number `max_iterations`.
    """

    state: tuple[StateArray, ...]
    reductions: tuple[Reduction, ...]
    granule: int
    max_iterations: int
    must_converge: bool
    saved: Mapping[str, tuple[tuple[int, ...], str]] = field(default_factory=dict)
    results: Mapping[str, StateArray] = field(default_factory=dict)

    def work_arrays(self, load: int, slots: int) -> Iterator[WorkArray]:
        """Yield the arrays besides inputs and outputs, of a job of `slots` devices."""
        yield from self.needed_arrays(load, slots)
        yield from self.saved_arrays()

    def needed_arrays(self, load: int, slots: int) -> Iterator[WorkArray]:
        """Yield those without which the job can't run."""
        for array in self.state:
            yield WorkArray(array.name, state_shape(array, load), array.dtype)
        for reduction in self.reductions:
            shape = partials_shape(reduction, slots)
            yield WorkArray(f"partials/{reduction.name}", shape, reduction.dtype)
        yield WorkArray(CONTROL, (control_words(slots),), "int32")

    def saved_arrays(self) -> Iterator[WorkArray]:
        """Yield those for rows that devices save; without them, rows never stay in a GPU."""
        for name, (shape, dtype) in self.saved.items():
            yield WorkArray(f"saved/{name}", shape, dtype)


def not_saving_note(nbytes: int) -> str:
    """Return why GPUs copy their rows to the host after each iteration; `nbytes`: of the state."""
    return (
        f"GPUs store their rows after each iteration: no room in shared memory for"
        f" {format_bytes(nbytes)} to save them in (arena.limit in the config)"
    )


def declare_iterative(workload: BaseWorkload, params: Any) -> IterativeDeclaration | None:
    """Return what an iterative workload declares; None for one that is computed in one pass."""
    if not isinstance(workload, Iterative):
        return None
    name = workload.name
    declaration = IterativeDeclaration(
        tuple(_state(name, array) for array in workload.state(params)),
        tuple(_reduction(name, reduction) for reduction in workload.reductions(params)),
        whole_number(f"{name}: granule()", workload.granule(params)),
        whole_number(f"{name}: max_iterations()", workload.max_iterations(params)),
        bool(workload.must_converge(params)),
    )
    if declaration.granule < 1 or declaration.max_iterations < 1:
        raise UsageError(
            f"{workload.name}: granules of {declaration.granule} rows and"
            f" {declaration.max_iterations} iterations; both must be at least 1"
        )
    if declaration.max_iterations > MAX_ITERATIONS:
        raise UsageError(
            f"{workload.name}: {declaration.max_iterations} iterations; the maximum is"
            f" {MAX_ITERATIONS} (continue a longer run with --resume)"
        )
    arrays = workload.arrays(params)
    names = [*(array.name for array in arrays), *(array.name for array in declaration.state)]
    if len({*names, CONTROL}) <= len(names):
        raise UsageError(f"{workload.name}: two arrays have the same name ({', '.join(names)})")
    if any(array.role == "inout" for array in arrays):
        raise UsageError(
            f"{workload.name}: an iterative workload has no inout arrays, since an iteration may"
            " be repeated; declare an input and an output"
        )
    for part in Part:
        _check_reductions(workload, stages_of(workload, params, part))
    results = _results(workload, params, declaration.state)
    return replace(declaration, saved=saved_shapes(workload, params), results=results)


def _results(
    workload: Iterative, params: Any, state: Sequence[StateArray]
) -> Mapping[str, StateArray]:
    """Return the outputs that are in the memory of state arrays. Raises UsageError."""
    outputs = {array.name: array for array in workload.arrays(params) if array.role == "out"}
    for array in state:
        output = outputs.get(array.result)
        layout = (array.unit_shape, array.dtype)
        if array.result and (output is None or (output.unit_shape, output.dtype) != layout):
            raise UsageError(
                f"{workload.name}: {array.name!r} can't be the result {array.result!r}: there is"
                " no output of this name with its unit_shape and dtype"
            )
    results = [array.result for array in state if array.result]
    twice = sorted({name for name in results if results.count(name) > 1})
    if twice:
        names = ", ".join(repr(array.name) for array in state if array.result == twice[0])
        raise UsageError(
            f"{workload.name}: state arrays {names} all have the result {twice[0]!r}; give it to"
            " one of them"
        )
    is_fixed = workload.has_fixed_length(params)
    return {array.result: array for array in state if array.result and is_fixed}


def _check_reductions(workload: BaseWorkload, stages: Sequence[Stage]) -> None:
    """Check that each reduction belongs to one stage: another one would replace its parts.

    A device may still combine those when the next one begins.
    """
    names = [name for stage in stages for name in stage.reductions]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise UsageError(f"{workload.name}: reduction {twice[0]!r} belongs to two stages")


def _state(workload: str, array: Any) -> StateArray:
    if not isinstance(array, StateArray):
        raise _wrong(f"{workload}: state()", array, "a StateArray")
    name = _text(f"{workload}: the name of a state array", array.name)
    return replace(
        array,
        unit_shape=tuple(whole_number(f"{workload}: {name}", n) for n in array.unit_shape),
        dtype=_dtype(f"{workload}: dtype of {name}", array.dtype),
        halo=whole_number(f"{workload}: halo of {name}", array.halo),
    )


def _reduction(workload: str, reduction: Any) -> Reduction:
    if not isinstance(reduction, Reduction):
        raise _wrong(f"{workload}: reductions()", reduction, "a Reduction")
    name = _text(f"{workload}: the name of a reduction", reduction.name)
    return replace(
        reduction,
        shape=tuple(whole_number(f"{workload}: {name}", n) for n in reduction.shape),
        dtype=_dtype(f"{workload}: dtype of {name}", reduction.dtype),
    )
