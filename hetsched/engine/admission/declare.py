"""What the code of a plug-in says about one kind of job, converted and checked.

This code may be slow or hang, so it never runs on the event loop. Its methods are pure, so that
for a job like an earlier one their results are known: it is admitted on the loop. Whatever a
plug-in returns is checked here: the rest of the engine relies on whole numbers, on finite bytes
and on text that can be encoded.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar, get_args

import msgspec
import numpy as np

from hetsched import errors
from hetsched.engine.admission.resolved_job import (
    Declaration,
    IterativeDeclaration,
    whole,
)
from hetsched.engine.threads import Step
from hetsched.iterations.home import Part, stages_of
from hetsched.iterations.saved_state import SAVED, saved_shapes
from hetsched.job import JobSpec
from hetsched.memory import MemoryDemand
from hetsched.plug_in_errors import plug_in_error
from hetsched.sparse import Shapes
from hetsched.transport.control import CONTROL
from hetsched.units import NUMBER_LIMIT
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
from hetsched.workload.conversion import decode_params
from hetsched.workload.protocol import Role
from hetsched.workload.registry import note_sources

MAX_SHOWN = 100
"""Characters of a value in an error message."""
MAX_TEXT = 10_000
"""Characters of a name or key that a plug-in chooses: lists and models keep it. Arbitrary."""
MAX_ITERATIONS = 2_000_000_000
"""Devices count iterations in 32 bits."""

Layout = TypeVar("Layout", ArraySpec, StateArray, Reduction)


def load_workload(name: str, step: Step) -> BaseWorkload:
    """Return the workload `name`; the first time its module is imported."""
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
            raise errors.DataError(f"{workload.name}: demand(): {error}") from error
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
    except errors.HetschedError:
        raise
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
    if not isinstance(value, str):
        raise _wrong(what, value, "text")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise _wrong(what, value, "text that UTF-8 can encode") from None
    if len(value) > MAX_TEXT:
        raise errors.DataError(f"{what} has {len(value)} characters; the maximum is {MAX_TEXT}")
    return value


def _wrong(what: str, value: Any, expected: str) -> errors.DataError:
    try:
        shown = ascii(value)[:MAX_SHOWN]
    except BaseException:  # of the plug-in's __repr__
        shown = f"an object of class {type(value).__name__}"
    return errors.DataError(f"{what} is {shown}, not {expected}")


def _encoded_params(workload: BaseWorkload, params: Any) -> bytes:
    """Return parameters as device processes get them."""
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
    """Return a declared array or reduction with plain numbers and text."""
    if not isinstance(value, kind):
        raise _wrong(what, value, f"of class {kind.__name__}")
    name = _text(
        f"{what}: the name of {'a reduction' if kind is Reduction else 'an array'}", value.name
    )
    axes = "shape" if kind is Reduction else "unit_shape"
    shape = tuple(whole_number(f"{what}: {axes} of {name}", n) for n in getattr(value, axes))
    if min(shape, default=1) < 0:
        raise _wrong(f"{what}: {axes} of {name}", shape, "at least 0 in each axis")
    changes: dict[str, Any] = {
        axes: shape,
        "dtype": _dtype(f"{what}: dtype of {name}", value.dtype),
    }
    if isinstance(value, ArraySpec) and value.role not in get_args(Role):
        raise _wrong(f"{what}: the role of {name}", value.role, " or ".join(get_args(Role)))
    if isinstance(value, StateArray):
        changes["halo"] = whole_number(f"{what}: halo of {name}", value.halo)
    return replace(value, **changes)


def _dtype(what: str, dtype: Any) -> str:
    """Return the name of a dtype of numbers."""
    try:
        found = np.dtype(dtype)
    except Exception:
        raise _wrong(what, dtype, "a dtype") from None
    if found.hasobject or found.itemsize == 0:
        raise _wrong(what, dtype, "a dtype of numbers")
    return dtype if isinstance(dtype, str) else found.name


# ---- iterations


def declare_iterative(workload: BaseWorkload, params: Any) -> IterativeDeclaration | None:
    """Return what an iterative workload declares; None for one that is computed in one pass."""
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
        tuple(whole(SAVED + array, *layout) for array, layout in saved.items()),
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
