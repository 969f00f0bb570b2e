"""The home copy of an iterative job's arrays, in shared memory, and the views that kernels get.

State arrays have their halo's rows beyond both edges and up to two buffers: the shape is
(buffers, halo + load + halo, *unit_shape). Iteration k >= 1 reads buffer (k - 1) % 2 of arrays
with two buffers and writes buffer k % 2; the start, iteration 0, reads and writes buffer 0; the
end after iteration k reads buffer k % 2.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from hetsched.workload import Arrays, Iterative, Reduction, Rows, Stage, StateArray
from hetsched.workload.iterative import StageCall, StageKernel


class Part(enum.Enum):
    START = "start"
    ITERATION = "iteration"
    FINISH = "finish"


def state_shape(array: StateArray, load: int) -> tuple[int, ...]:
    buffers = 2 if array.has_two_buffers else 1
    return (buffers, load + 2 * array.halo, *array.unit_shape)


def stages_of(workload: Iterative, params: Any, part: Part) -> tuple[Stage, ...]:
    return tuple(getattr(workload, part.value)(params))


def compute_stage(kernel: StageKernel, call: StageCall) -> None:
    for partial in call.partials.values():
        partial[...] = 0
    with np.errstate(all="ignore"):  # overflows and NaN are found in the results
        kernel(call)


class Home:
    """The arrays of a job by name: whole inputs and outputs, and the home copies of the state."""

    def __init__(self, workload: Iterative, params: Any, arrays: Mapping[str, Any]) -> None:
        self._arrays = arrays
        self._state = {array.name: array for array in workload.state(params)}
        self._specs = {spec.name: spec for spec in workload.arrays(params)}

    def array(self, name: str) -> Any:
        return self._arrays[name]

    def fill_borders(self) -> None:
        """Write the fixed border rows. Before the first stage, by one device."""
        for array in self._state.values():
            if array.halo and array.border == "fixed":
                home = self._arrays[array.name]
                home[:, : array.halo] = array.border_value
                home[:, -array.halo :] = array.border_value

    def views(self, stage: Stage, part: Part, iteration: int, rows: Rows) -> tuple[Arrays, Arrays]:
        inputs = {name: self._input(name, part, iteration, rows) for name in stage.inputs}
        outputs = {
            name: self._output(name, part, iteration, rows)
            for name in stage.outputs
            if rows.is_first or name in self._state or not self._specs[name].is_whole
        }
        return inputs, outputs

    def _input(self, name: str, part: Part, iteration: int, rows: Rows) -> Any:
        array = self._state.get(name)
        if array is None:
            return self._given(name, rows)
        buffer = self._arrays[name][read_buffer(array, part, iteration)]
        if array.is_whole:
            return buffer[array.halo : array.halo + rows.load]
        return buffer[rows.first : rows.stop + 2 * array.halo]

    def _output(self, name: str, part: Part, iteration: int, rows: Rows) -> Any:
        array = self._state.get(name)
        if array is None:
            return self._given(name, rows)
        buffer = self._arrays[name][write_buffer(array, part, iteration)]
        return buffer[array.halo + rows.first : array.halo + rows.stop]

    def _given(self, name: str, rows: Rows) -> Any:
        whole, spec = self._arrays[name], self._specs[name]
        if spec.pointers == name:
            return whole[rows.first : rows.stop + 1]
        if spec.pointers:
            pointers = self._arrays[spec.pointers]
            return whole[int(pointers[rows.first]) : int(pointers[rows.stop])]
        return whole if spec.is_whole else whole[rows.first : rows.stop]

    def border_copies(
        self, stage: Stage, part: Part, iteration: int, rows: Rows
    ) -> Iterator[tuple[Any, Any]]:
        """Yield (border row, row that it mirrors) of what the stage writes in `rows`."""
        for name in stage.outputs:
            array = self._state.get(name)
            if array is not None:
                home = self._arrays[name][write_buffer(array, part, iteration)]
                yield from mirrored_rows(array, home, rows)


def read_buffer(array: StateArray, part: Part, iteration: int) -> int:
    """Return the buffer that iteration `iteration` reads, or that the end after it reads."""
    if not array.has_two_buffers or part is Part.START:
        return 0
    return (iteration - 1) % 2 if part is Part.ITERATION else iteration % 2


def write_buffer(array: StateArray, part: Part, iteration: int) -> int:
    if not array.has_two_buffers or part is Part.START:
        return 0
    return iteration % 2


def mirrored_rows(array: StateArray, home: Any, rows: Rows) -> Iterator[tuple[Any, Any]]:
    """Yield (row beyond an edge, the row of `rows` that it repeats) of a buffer, `home`."""
    halo, load = array.halo, rows.load
    if array.border == "fixed":
        return
    for ghost in range(halo):
        is_mirror = array.border == "reflect"
        before = halo - 1 - ghost if is_mirror else load - halo + ghost
        after = load - 1 - ghost if is_mirror else ghost
        for beyond, source in ((ghost, before), (halo + load + ghost, after)):
            if rows.first <= source < rows.stop:
                yield home[beyond, ...], home[halo + source, ...]


def mirror_borders(
    state: Iterable[StateArray], arrays: Mapping[str, Any], iteration: int, rows: Rows
) -> None:
    """Have the rows beyond the edges repeat what they mirror of `rows` after `iteration`."""
    for array in state:
        home = arrays[array.name][read_buffer(array, Part.FINISH, iteration)]
        for ghost, source in mirrored_rows(array, home, rows):
            ghost[...] = source


# ---- partial results of reductions: by parity of the iteration and slot
#
# A device writes its own slot only, and each device combines all of them for itself, in the same
# order, so that every device has the same values. Those of the previous iteration stay until the
# present one is complete, so that it can be repeated. One more slot, the last, has combined values
# where they can't be combined again: those that only the start computes, and a checkpoint's.

PARTIALS = "partials/"
"""Before the name of a reduction: the name of the array of its partial results."""
COMBINED = -1
"""The slot that has combined values."""

_COMBINE: dict[str, Callable[[Sequence[np.ndarray]], Any]] = {
    "sum": np.add.reduce,
    "max": np.maximum.reduce,
    "min": np.minimum.reduce,
}


def partials_shape(reduction: Reduction, slots: int) -> tuple[int, ...]:
    """Return the shape of the array of a reduction for `slots` devices: (2, slots + 1, ...)."""
    return (2, slots + 1, *reduction.shape)


def slot_of(
    partials: Mapping[str, np.ndarray], iteration: int, slot: int
) -> dict[str, np.ndarray]:
    """Return the arrays that the device of `slot` fills in an iteration."""
    return {name: array[iteration % 2, slot, ...] for name, array in partials.items()}


def combine(
    reduction: Reduction, partials: np.ndarray, iteration: int, slots: Sequence[int]
) -> np.ndarray:
    """Return the combined value of the devices of `slots`, which have rows, in their order."""
    parts = [np.asarray(partials[iteration % 2, slot]) for slot in slots]
    how = reduction.combine
    value = _COMBINE[how](parts) if isinstance(how, str) else how(parts)
    return np.array(value, dtype=reduction.dtype).reshape(reduction.shape)
