"""An iterative job that a device holds: its arrays in shared memory, and what computes on them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hetsched.devices.base import Device, DeviceJob
from hetsched.devices.iterating import IteratingDevice, IterativeJob, StageExecutor
from hetsched.errors import InternalError, UsageError
from hetsched.iterations.home import Home, Part, stages_of, state_shape
from hetsched.iterations.partials import combine, combined_slot, partials_shape, slot_of
from hetsched.iterations.saved_state import restore_rows, save_rows, saved_shapes
from hetsched.transport.control import IterationControl, control_words, slots_of
from hetsched.workload import Iterative, Reduction, Rows, Stage, Values

CONTROL = "control"
PARTIALS = "partials/"
"""Before the name of a reduction: the name of the array of its partial results."""
SAVED = "saved/"
"""Before the name of an array: the name of the copy to which devices go back together."""
SPIN_SECONDS = 50e-6
"""How long a core looks for the others before it sleeps: about what waking it up may take."""


@dataclass(frozen=True, eq=False)
class IterativeRun:
    """What an epoch needs of a job that is prepared on a device.

    Attributes
    ----------
    partials : mapping
        Name of a reduction -> array of `partials_shape`.
    arrays, saved : mapping
        Name -> whole home array; name -> what is saved of it. Nothing is saved where no device
        has its own memory.
    """

    workload: Iterative
    params: Any
    load: int
    home: Home
    executor: StageExecutor
    reductions: Mapping[str, Reduction]
    partials: Mapping[str, np.ndarray]
    control: IterationControl
    arrays: Mapping[str, np.ndarray]
    saved: Mapping[str, np.ndarray]

    def save(self, iteration: int, rows: Rows) -> None:
        """Save the state of `rows` after `iteration`."""
        save_rows(self.workload, self.params, self.arrays, self.saved, iteration, rows)

    def restore(self, iteration: int, rows: Rows) -> None:
        """Go back to the state of `rows` after `iteration`, which was saved."""
        restore_rows(self.workload, self.params, self.arrays, self.saved, iteration, rows)


class EpochValues:
    """Values of one device.

    Partials and values of the start alternate between both parities from round to round, as those
    of iterations do: a device may still combine the values of one round while another one already
    computes the next.

    Parameters
    ----------
    slot : int
        Of this device in partials.

    Attributes
    ----------
    values : Values
        For kernels.
    slots : sequence of int
        Slots with rows, in the order of their rows.
    """

    def __init__(self, run: IterativeRun, slot: int) -> None:
        self.values = Values()
        self.slots: Sequence[int] = ()
        self._run = run
        self._slot = slot
        self._own: dict[tuple[str, int], Mapping[str, np.ndarray]] = {}

    def partials(self, stage: Stage, parity: int) -> Mapping[str, np.ndarray]:
        """Return the arrays that the stage's kernel fills."""
        key = (stage.name, parity)
        if key not in self._own:
            arrays = {name: self._run.partials[name] for name in stage.reductions}
            self._own[key] = slot_of(arrays, parity, self._slot)
        return self._own[key]

    def combine(self, stage: Stage, parity: int) -> None:
        """Combine what all devices have computed in the stage."""
        if not stage.reductions:
            return
        now = dict(self.values.now)
        for name in stage.reductions:
            now[name] = combine(
                self._run.reductions[name], self._run.partials[name], parity, self.slots
            )
        self.values = Values(now, self.values.before)

    def begin_iteration(self) -> None:
        """Make the present values those of the previous iteration."""
        self.values = Values(self.values.now, self.values.now)

    def save_start(self) -> None:
        """Store the values of the start, which the partials of iterations will replace.

        By all devices: they store the same, and the start is complete when any one has died.
        """
        for name in self._reductions_of(Part.START):
            array = self._run.partials[name]
            array[:, combined_slot(array)] = self.values.now[name]

    def save(self) -> None:
        """Store the values of the last iteration, which later ones will replace; by one device."""
        for name, value in self.values.now.items():
            array = self._run.partials[name]
            array[:, combined_slot(array)] = value

    def restore(self, iteration: int, previous: Sequence[int]) -> None:
        """Take the values after `iteration` from the partials of the slots `previous`.

        (): from the combined values.
        """
        in_iteration = set(self._reductions_of(Part.ITERATION)) if iteration > 0 else set()
        now = {}
        for name in dict.fromkeys((*self._reductions_of(Part.START), *in_iteration)):
            reduction, array = self._run.reductions[name], self._run.partials[name]
            if name in in_iteration and previous:
                now[name] = combine(reduction, array, iteration, previous)
            else:
                saved = array[iteration % 2, combined_slot(array)]
                now[name] = np.array(saved, dtype=reduction.dtype)
        self.values = Values(now, now)

    def _reductions_of(self, part: Part) -> Iterable[str]:
        for stage in stages_of(self._run.workload, self._run.params, part):
            yield from stage.reductions


def prepare_run(
    device: Device, device_name: str, job: DeviceJob, arrays: Mapping[str, np.ndarray]
) -> IterativeRun:
    """Prepare the device for an iterative job.

    Parameters
    ----------
    arrays : mapping
        All arrays by their names in `Prepare.arrays`.

    Raises
    ------
    UsageError
        The device can't take part in iterative jobs, or lacks the variant.
    InternalError
        An array is missing or has another shape or dtype than kernels expect.
    DeviceOutOfMemory
    """
    workload, params = job.workload, job.params
    assert isinstance(workload, Iterative)
    if not isinstance(device, IteratingDevice):
        raise UsageError(f"{device_name} can't compute iterative jobs such as {workload.name}")
    load = workload.load(params)
    slots = slots_of(_required(arrays, CONTROL).size)
    reductions = {reduction.name: reduction for reduction in workload.reductions(params)}
    _check_arrays(workload, params, load, slots, arrays)
    home = Home(workload, params, arrays)
    executor = device.prepare_iterations(IterativeJob(job, home))
    spin = SPIN_SECONDS if executor.has_own_core else 0.0
    return IterativeRun(
        workload,
        params,
        load,
        home,
        executor,
        reductions,
        {name: arrays[PARTIALS + name] for name in reductions},
        IterationControl(arrays[CONTROL], slots, spin),
        arrays,
        {name.removeprefix(SAVED): arrays[name] for name in arrays if name.startswith(SAVED)},
    )


def _check_arrays(
    workload: Iterative, params: Any, load: int, slots: int, arrays: Mapping[str, np.ndarray]
) -> None:
    for spec in workload.arrays(params):
        _check(arrays, spec.name, spec.shape(load), spec.dtype)
    for state in workload.state(params):
        _check(arrays, state.name, state_shape(state, load), state.dtype)
    for reduction in workload.reductions(params):
        name = PARTIALS + reduction.name
        _check(arrays, name, partials_shape(reduction, slots), reduction.dtype)
    for name, (shape, dtype) in saved_shapes(workload, params).items():
        if SAVED + name in arrays:
            _check(arrays, SAVED + name, shape, dtype)
    _check(arrays, CONTROL, (control_words(slots),), "int32")


def _check(
    arrays: Mapping[str, np.ndarray], name: str, shape: tuple[int, ...], dtype: str
) -> None:
    array = _required(arrays, name)
    if array.shape != shape or array.dtype != np.dtype(dtype):
        raise InternalError(
            f"array {name!r} is stored as {array.dtype} {array.shape}, not as {dtype} {shape}"
        )
    if not (array.flags.c_contiguous and array.flags.aligned):
        raise InternalError(f"array {name!r} isn't stored in aligned rows")


def _required(arrays: Mapping[str, np.ndarray], name: str) -> np.ndarray:
    if name not in arrays:
        raise InternalError(f"the job has no array {name!r}")
    return arrays[name]
