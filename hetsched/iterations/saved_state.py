"""What must be saved of an iterative job to continue after some iteration.

Pure: copies between the home copy of the arrays and plain arrays. Which arrays matter follows from
the stages, so a workload declares nothing: those whose values after an iteration are read later.
Rows beyond the edges aren't saved, since they repeat others or are fixed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hetsched.iterations.home import Home, Part, mirror_borders, read_buffer, stages_of
from hetsched.workload import Iterative, Rows, Stage, StateArray

SAVED = "saved/"
"""Before the name of an array: the name of the copy to which devices go back together."""


@dataclass(frozen=True)
class SavedState:
    """A job after `iteration`."""

    iteration: int
    arrays: Mapping[str, np.ndarray]  # Of `saved_names`, without the rows beyond their edges
    values: Mapping[str, np.ndarray]  # Combined ones, of `value_shapes`


def saved_names(workload: Iterative, params: Any) -> tuple[str, ...]:
    """Return the state arrays and outputs to save, in the order of their declaration."""
    state = {array.name: array for array in workload.state(params)}
    outputs = [array.name for array in workload.arrays(params) if array.is_output]
    iteration = stages_of(workload, params, Part.ITERATION)
    finish = stages_of(workload, params, Part.FINISH)
    before_finish = (*stages_of(workload, params, Part.START), *iteration)
    written_before = {name for stage in before_finish for name in stage.outputs}
    is_read = set(_read_first(iteration, state)) | set(_read_first(finish, state))
    return tuple(
        name
        for name in (*state, *outputs)
        if name in is_read or (name in outputs and name in written_before)
    )


def _read_first(stages: Sequence[Stage], state: Mapping[str, StateArray]) -> Iterator[str]:
    """Yield the arrays of which `stages` read values from before."""
    written: set[str] = set()
    for stage in stages:
        for name in stage.inputs:
            is_old = name in state and state[name].has_two_buffers
            if is_old or name not in written:
                yield name
        written.update(stage.outputs)


def saved_shapes(workload: Iterative, params: Any) -> dict[str, tuple[tuple[int, ...], str]]:
    load = workload.load(params)
    shapes = {a.name: ((load, *a.unit_shape), a.dtype) for a in workload.state(params)}
    shapes |= {a.name: (a.shape(load), a.dtype) for a in workload.arrays(params)}
    return {name: shapes[name] for name in saved_names(workload, params)}


def value_shapes(workload: Iterative, params: Any) -> dict[str, tuple[tuple[int, ...], str]]:
    """Return the shape and dtype of each combined value that an iteration may read."""
    stages = (
        *stages_of(workload, params, Part.START),
        *stages_of(workload, params, Part.ITERATION),
    )
    computed = {name for stage in stages for name in stage.reductions}
    return {r.name: (r.shape, r.dtype) for r in workload.reductions(params) if r.name in computed}


def saved_bytes(workload: Iterative, params: Any) -> int:
    shapes = (*saved_shapes(workload, params).values(), *value_shapes(workload, params).values())
    return sum(math.prod(shape) * np.dtype(dtype).itemsize for shape, dtype in shapes)


def state_views(
    workload: Iterative, params: Any, arrays: Mapping[str, np.ndarray], iteration: int
) -> dict[str, np.ndarray]:
    """Return views of what must be saved after `iteration`; `arrays`: as for `Home`."""
    load = workload.load(params)
    state = {array.name: array for array in workload.state(params)}
    views = {}
    for name in saved_names(workload, params):
        array, views[name] = state.get(name), arrays[name]
        if array is not None:
            home = arrays[name][read_buffer(array, Part.FINISH, iteration)]
            views[name] = home[array.halo : array.halo + load]
    return views


def restore_state(
    workload: Iterative, params: Any, arrays: Mapping[str, np.ndarray], saved: SavedState
) -> None:
    """Write saved values to a job's arrays, so that iteration `saved.iteration` + 1 can follow."""
    Home(workload, params, arrays).fill_borders()
    load = workload.load(params)
    every = Rows(0, load, load)
    restore_rows(workload, params, arrays, saved.arrays, saved.iteration, every)


def saved_rows(
    workload: Iterative,
    params: Any,
    arrays: Mapping[str, np.ndarray],
    saved: Mapping[str, np.ndarray],
    iteration: int,
    rows: Rows,
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the state of `rows` after `iteration`, and its place in `saved`.

    Whole arrays belong to the device with the first row.
    """
    whole = {array.name for array in workload.arrays(params) if array.is_whole}
    for name, view in state_views(workload, params, arrays, iteration).items():
        part = slice(rows.first, rows.stop)
        if name in whole:
            part = slice(None) if rows.is_first and rows.count else slice(0)
        yield view[part], saved[name][part]


def restore_rows(
    workload: Iterative,
    params: Any,
    arrays: Mapping[str, np.ndarray],
    saved: Mapping[str, np.ndarray],
    iteration: int,
    rows: Rows,
) -> None:
    """Copy the state of `rows` after `iteration` back from `saved`, and to border rows like it."""
    for state, kept in saved_rows(workload, params, arrays, saved, iteration, rows):
        state[...] = kept
    known = (array for array in workload.state(params) if array.name in saved)
    mirror_borders(known, arrays, iteration, rows)
