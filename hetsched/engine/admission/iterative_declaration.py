"""What a plug-in says about an iterative job besides its inputs and outputs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from hetsched.errors import UsageError
from hetsched.iterations.home import Part, stages_of, state_shape
from hetsched.iterations.partials import partials_shape
from hetsched.iterations.saved_state import saved_shapes
from hetsched.transport.iterations.control import control_words
from hetsched.units import format_bytes
from hetsched.workload import BaseWorkload, Iterative, Reduction, Stage, StateArray

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
    """Return what an iterative workload declares; None for one that is computed in one pass.

    Raises
    ------
    UsageError
        It declares something impossible.
    """
    if not isinstance(workload, Iterative):
        return None
    declaration = IterativeDeclaration(
        tuple(workload.state(params)),
        tuple(workload.reductions(params)),
        workload.granule(params),
        workload.max_iterations(params),
        workload.must_converge(params),
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
