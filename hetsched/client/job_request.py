"""Converts arrays and keywords to a JobSpec, and a Done state to arrays.

The daemon's client and the embedded engine both use it, with different sources of shared memory
(`SharedArrays`). Before a short job each Python call counts, about a microsecond: checks against
abstract classes, which take some, come after that for an array.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from hetsched.client import validation
from hetsched.errors import DataError, UsageError
from hetsched.iteration_options import check_iteration_options
from hetsched.job import ArenaOut, ArenaRef, Done, FileOut, FileRef, InputRef, JobSpec, OutputRef
from hetsched.paths import real_path
from hetsched.sparse.rows import is_sparse, sparse_arrays
from hetsched.transport.arena import Segment
from hetsched.transport.arrays import locate_in_segment
from hetsched.units import NUMBER_LIMIT, quoted

ONLY = ""
"""Name that stands for the only array."""

ArrayOrPath = np.ndarray | str | os.PathLike[str]
"""An array, or the path of a .npy file."""
Inputs = Any
"""An ArrayOrPath, a sparse matrix of SciPy, or a mapping of names to these."""


class SharedArrays(Protocol):
    """Source of arrays in shared memory."""

    def empty(self, shape: tuple[int, ...], dtype: str) -> np.ndarray:
        """Allocate a shared array, freed with its last view."""

    def map(self, ref: ArenaRef) -> np.ndarray:
        """Return the array behind `ref`, with a reference held until its last view is freed."""

    def claim(self, segment: Segment) -> bool:
        """Make `segment` usable for jobs in place, if it is one of this source; else False."""


@dataclass
class PreparedJob:
    """A JobSpec, and what the caller needs to convert a Done state to a result.

    Attributes
    ----------
    inputs : list of arrays
        Shared, and kept until the job's end is known: the daemon may be killed right after it has
        released its own references, and the next one needs the same data for another attempt.
    targets : mapping
        Output name -> the caller's own array.
    """

    spec: JobSpec
    segments: SharedArrays
    inputs: list[np.ndarray] = field(default_factory=list)
    targets: dict[str, np.ndarray] = field(default_factory=dict)

    def result(self, done: Done) -> Any:
        """Return the only output, or a dict by name; a Path for an output saved as file.

        Always a dict if the job has iterations.

        Raises
        ------
        DataError
            The caller's array has another shape, or can't hold the dtype.
        InputMissing
            The result is no longer kept.
        """
        self.inputs.clear()  # before the caller submits the next job, which may use their memory
        values: dict[str, Any] = {
            name: self._array(name, ref) for name, ref in done.results.items()
        }
        values |= {name: Path(path) for name, path in done.report.outputs.items()}
        is_alone = len(values) == 1 and done.report.iterations is None
        return next(iter(values.values())) if is_alone else values

    def _array(self, name: str, ref: ArenaRef) -> np.ndarray:
        target = self.targets.get(name, self.targets.get(ONLY))
        if target is None:
            return self.segments.map(ref)
        place = shared(target, self.segments)
        if place is None or (place.segment, place.offset) != (ref.segment, ref.offset):
            _copy_out(name, self.segments.map(ref), target)
        return target


def prepare(  # noqa: PLR0913 - one for each option
    segments: SharedArrays,
    workload: str,
    arrays: Inputs,
    out: ArrayOrPath | Mapping[str, ArrayOrPath] | None,
    params: Mapping[str, Any],
    *,
    devices: str | Sequence[str] = (),
    memory_limit: int | str | None = None,
    verify: bool = False,
    seed: int = 0,
    force: bool = False,
    options: Mapping[str, Any] | None = None,
) -> PreparedJob:
    """Make a JobSpec of a user's arguments; arrays outside shared memory are copied in.

    `options`: the fields that `queue_fields` and `iteration_fields` return.

    Raises
    ------
    UsageError
        A parameter has the wrong type or is out of range.
    DataError, TryAgain
        An array can't be stored in shared memory, or there is no room for it.
    """
    inputs: list[np.ndarray] = []
    ins, outs = _inputs_by_name(arrays), _by_name("out", out)
    overwrite = validation.boolean("force", force)
    plain = {name: _plain(name, value) for name, value in params.items()} if params else {}
    targets = {
        name: _writable(name, value)
        for name, value in outs.items()
        if isinstance(value, np.ndarray) or not isinstance(value, str | os.PathLike)
    }
    spec = JobSpec(
        workload=validation.text("workload", workload, "a workload's name, or module:qualname"),
        params=plain,
        devices=validation.devices(devices),
        memory_limit=validation.memory_limit(memory_limit),
        verify=validation.boolean("verify", verify),
        seed=validation.integer("seed", seed, 0),
        outputs={name: _output(value, segments, overwrite) for name, value in outs.items()},
        inputs={name: _input(value, segments, inputs) for name, value in ins.items()},
        **(options or {}),
    )
    if options:
        check_iteration_options(spec)
    return PreparedJob(spec, segments, inputs, targets)


def numeric(dtype: Any) -> str:
    """Return the name of a numeric `dtype`, in any form that NumPy accepts. Raises DataError."""
    try:
        kind = np.dtype(dtype)
    except (TypeError, ValueError, SyntaxError) as error:
        raise DataError(f"dtype {quoted(dtype)}: {error}") from None
    if kind.kind not in "biufc":
        raise DataError(f"dtype {kind}: only numeric dtypes are supported")
    name: str = kind.newbyteorder("=").name
    return name


def shared(array: np.ndarray, segments: SharedArrays) -> ArenaRef | None:
    """Return the location of `array` in shared memory; None if it must be copied."""
    if not (array.flags.c_contiguous and array.dtype.isnative):
        return None
    location = locate_in_segment(array)
    if location is None or not segments.claim(location[0]):
        return None
    segment, offset = location
    return ArenaRef(segment.id, array.shape, _dtype_name(array.dtype), offset)


@functools.lru_cache(maxsize=64)
def _dtype_name(dtype: np.dtype[Any]) -> str:
    """Return NumPy's name, which it builds from parts each time."""
    return dtype.name


def _by_name(
    parameter: str, arrays: ArrayOrPath | Mapping[str, ArrayOrPath] | None
) -> Mapping[str, ArrayOrPath]:
    if arrays is None:
        return {}
    if isinstance(arrays, np.ndarray) or not isinstance(arrays, Mapping):
        return {ONLY: arrays}
    return {validation.text(parameter, name, "an array's name"): arrays[name] for name in arrays}


def _inputs_by_name(arrays: Inputs) -> Mapping[str, ArrayOrPath]:
    """Return the inputs by name, with the three arrays of a sparse matrix in its place.

    Raises UsageError for an array that is given twice, as part of a matrix and by its own name.
    """
    if isinstance(arrays, np.ndarray):
        return {ONLY: arrays}
    ins: dict[str, ArrayOrPath] = {}
    for name, value in _by_name("arrays", arrays).items():
        parts = sparse_arrays(name, value) if is_sparse(value) else {name: value}
        for twice in parts.keys() & ins.keys():
            raise UsageError(f"arrays: {twice} is given twice: by name and as part of a matrix")
        ins |= parts
    return ins


def _input(value: ArrayOrPath, segments: SharedArrays, inputs: list[np.ndarray]) -> InputRef:
    if not isinstance(value, np.ndarray) and isinstance(value, str | os.PathLike):
        return FileRef(real_path(value))
    try:
        array = np.asarray(value)
    except (TypeError, ValueError) as error:  # rows of different lengths
        raise DataError(f"arrays: {quoted(value)} is not an array: {error}") from None
    ref = shared(array, segments)
    if ref is None:
        array = _copy_in(array, segments)
        ref = shared(array, segments)
        assert ref is not None
    inputs.append(array)
    return ref


def _copy_in(array: np.ndarray, segments: SharedArrays) -> np.ndarray:
    copy = segments.empty(array.shape, numeric(array.dtype))
    np.copyto(copy, array)
    return copy


def _output(value: ArrayOrPath, segments: SharedArrays, force: bool) -> OutputRef:
    if not isinstance(value, np.ndarray) and isinstance(value, str | os.PathLike):
        return FileOut(real_path(value), force)
    return ArenaOut(shared(value, segments))


def _writable(name: str, array: ArrayOrPath) -> np.ndarray:
    if not isinstance(array, np.ndarray):
        raise UsageError(
            f"out{name and ' '}{name}: {quoted(array)} should be a NumPy array to write to, or the"
            " path of a .npy file"
        )
    if not array.flags.writeable:
        raise DataError(f"out {name or 'array'} is read-only; give one that can be written")
    return array


def _copy_out(name: str, result: np.ndarray, target: np.ndarray) -> None:
    if result.shape != target.shape or not np.can_cast(result.dtype, target.dtype, "same_kind"):
        raise DataError(
            f"out {name}: the result is {result.dtype} {result.shape}, but the array is"
            f" {target.dtype} {target.shape}; use client.empty({result.shape},"
            f' "{result.dtype}")'
        )
    np.copyto(target, result)


def _plain(name: str, value: Any) -> Any:
    """Convert NumPy's types in `value` to plain ones, which msgpack can encode."""
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if isinstance(value, np.dtype):
        return value.name
    if isinstance(value, type) and issubclass(value, np.generic):
        return np.dtype(value).name
    if isinstance(value, list | tuple):
        return [_plain(name, item) for item in value]
    if isinstance(value, int) and not -NUMBER_LIMIT <= value < NUMBER_LIMIT:
        raise UsageError(f"{name}: a number of {value.bit_length()} bits; the maximum is 63")
    if isinstance(value, str):
        return validation.text(f"parameter {name}", value, "text that UTF-8 can encode")
    if value is None or isinstance(value, bool | int | float):
        return value
    raise UsageError(f"parameter {name}: {quoted(value)} is neither a number nor text")
