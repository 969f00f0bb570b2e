"""From arrays and keywords to a JobSpec, and from a Done state to arrays.

The same for the daemon's client and the embedded engine: they differ in where shared memory comes
from (`Segments`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from hetsched.client import validation
from hetsched.errors import DataError, UsageError
from hetsched.job import ArenaOut, ArenaRef, Done, FileOut, FileRef, InputRef, JobSpec, OutputRef
from hetsched.transport.arena import Segment
from hetsched.transport.array_views import locate_in_segment
from hetsched.units import NUMBER_LIMIT, quoted

ONLY = ""
"""The name that stands for the only array."""

PRIORITIES = (-20, 19)
"""The least and the greatest, as nice(1) has them."""

Given = np.ndarray | str | os.PathLike[str]
"""An array, or the path of a .npy file."""


class Segments(Protocol):
    """Where shared memory comes from."""

    def empty(self, shape: tuple[int, ...], dtype: str) -> np.ndarray:
        """A new shared array, freed when its last view dies."""

    def map(self, ref: ArenaRef) -> np.ndarray:
        """The array behind `ref`; holds a reference until its last view dies."""

    def owns(self, segment: Segment) -> bool:
        """Whether `segment` came from here."""


@dataclass
class Request:
    """A JobSpec, and what its caller needs to make a result of the job's end.

    Attributes
    ----------
    held : list of arrays
        Copies that must live until the job has been accepted.
    targets : mapping
        Output name -> the caller's own array.
    """

    spec: JobSpec
    segments: Segments
    held: list[np.ndarray] = field(default_factory=list)
    targets: dict[str, np.ndarray] = field(default_factory=dict)

    def result(self, done: Done) -> Any:
        """The only output, or a dict of all by name; a Path for what became a file.

        Raises
        ------
        DataError
            The caller's ordinary array has another shape, or can't hold the dtype.
        InputMissing
            The result isn't kept any more.
        """
        values: dict[str, Any] = {
            name: self._array(name, ref) for name, ref in done.results.items()
        }
        values |= {name: Path(path) for name, path in done.report.outputs.items()}
        return next(iter(values.values())) if len(values) == 1 else values

    def _array(self, name: str, ref: ArenaRef) -> np.ndarray:
        target = self.targets.get(name, self.targets.get(ONLY))
        if target is None:
            return self.segments.map(ref)
        if shared(target, self.segments) is None:
            _copy_out(name, self.segments.map(ref), target)
        return target


def prepare(  # noqa: PLR0913 - all that a user may say
    segments: Segments,
    workload: str,
    arrays: Given | Mapping[str, Given] | None,
    out: Given | Mapping[str, Given] | None,
    params: Mapping[str, Any],
    *,
    devices: str | Sequence[str] = (),
    memory_limit: int | str | None = None,
    verify: bool = False,
    seed: int = 0,
    priority: int = 0,
    force: bool = False,
) -> Request:
    """Everything that a user may say, as a JobSpec; ordinary arrays are copied in, once.

    Raises
    ------
    UsageError
        A parameter or keyword of a wrong type, or out of its range.
    DataError, TryAgain
        An array that can't live in shared memory; no room for it.
    """
    held: list[np.ndarray] = []
    ins, outs = _named("arrays", arrays), _named("out", out)
    overwrite = validation.boolean("force", force)
    plain = {name: _plain(name, value) for name, value in params.items()}
    targets = {
        name: _writable(name, value)
        for name, value in outs.items()
        if not isinstance(value, str | os.PathLike)
    }
    spec = JobSpec(
        workload=validation.text("workload", workload, "a workload's name, or module:qualname"),
        params=plain,
        devices=validation.devices(devices),
        memory_limit=validation.memory_limit(memory_limit),
        verify=validation.boolean("verify", verify),
        seed=validation.integer("seed", seed, 0),
        priority=validation.integer("priority", priority, *PRIORITIES),
        outputs={name: _output(value, segments, overwrite) for name, value in outs.items()},
        inputs={name: _input(value, segments, held) for name, value in ins.items()},
    )
    return Request(spec, segments, held, targets)


def numeric(dtype: Any) -> str:
    """The name of `dtype`, anything that NumPy takes for one. Raises DataError."""
    try:
        kind = np.dtype(dtype)
    except (TypeError, ValueError, SyntaxError) as error:
        raise DataError(f"dtype {quoted(dtype)}: {error}") from None
    if kind.kind not in "biufc":
        raise DataError(f"dtype {kind}: only numbers can be computed with")
    name: str = kind.newbyteorder("=").name
    return name


def shared(array: np.ndarray, segments: Segments) -> ArenaRef | None:
    """Where `array` lies in shared memory that `segments` owns; None if it must be copied."""
    if not (array.flags.c_contiguous and array.dtype.isnative):
        return None
    place = locate_in_segment(array)
    if place is None or not segments.owns(place[0]):
        return None
    segment, offset = place
    return ArenaRef(segment.id, array.shape, array.dtype.name, offset)


def _named(what: str, given: Given | Mapping[str, Given] | None) -> Mapping[str, Given]:
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        return {ONLY: given}
    return {validation.text(what, name, "an array's name"): given[name] for name in given}


def _input(value: Given, segments: Segments, held: list[np.ndarray]) -> InputRef:
    if isinstance(value, str | os.PathLike):
        return FileRef(str(Path(value).absolute()))
    try:
        array = np.asarray(value)
    except (TypeError, ValueError) as error:  # rows of different lengths
        raise DataError(f"arrays: {quoted(value)} is no array: {error}") from None
    ref = shared(array, segments)
    if ref is None:
        copy = _copy_in(array, segments)
        held.append(copy)
        ref = shared(copy, segments)
        assert ref is not None
    return ref


def _copy_in(array: np.ndarray, segments: Segments) -> np.ndarray:
    copy = segments.empty(array.shape, numeric(array.dtype))
    np.copyto(copy, array)
    return copy


def _output(value: Given, segments: Segments, force: bool) -> OutputRef:
    if isinstance(value, str | os.PathLike):
        return FileOut(str(Path(value).absolute()), force)
    return ArenaOut(shared(value, segments))


def _writable(name: str, array: Given) -> np.ndarray:
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
            f"out {name}: the result is {result.dtype} {result.shape}, the array given is"
            f" {target.dtype} {target.shape}; use client.empty({result.shape},"
            f' "{result.dtype}")'
        )
    np.copyto(target, result)


def _plain(name: str, value: Any) -> Any:
    """`value` without NumPy: what msgpack can carry."""
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if isinstance(value, np.dtype):
        return value.name
    if isinstance(value, type) and issubclass(value, np.generic):
        return np.dtype(value).name
    if isinstance(value, list | tuple):
        return [_plain(name, item) for item in value]
    if isinstance(value, int) and not -NUMBER_LIMIT <= value < NUMBER_LIMIT:
        raise UsageError(f"{name}: a number of {value.bit_length()} bits; 63 is the most")
    if isinstance(value, str):
        return validation.text(f"parameter {name}", value, "text that UTF-8 can encode")
    if value is None or isinstance(value, bool | int | float):
        return value
    raise UsageError(f"parameter {name}: {quoted(value)} is neither a number nor text")
