"""An iterative job that a device holds: its arrays in shared memory, and what computes on them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from hetsched.devices.base import Device, DeviceJob
from hetsched.devices.iterating import IteratingDevice, IterativeJob, StageExecutor
from hetsched.errors import InternalError, UsageError
from hetsched.iterations.home import Home, state_shape
from hetsched.iterations.partials import partials_shape
from hetsched.iterations.saved_state import restore_rows, save_rows, saved_shapes
from hetsched.transport.control import IterationControl, control_words, slots_of
from hetsched.workload import Iterative, Reduction, Rows

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
