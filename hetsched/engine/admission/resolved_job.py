"""What a job's workload declares, and the job itself: bound to arrays and devices, files open."""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hetsched.engine.threads import Step
from hetsched.iterations.home import state_shape
from hetsched.iterations.partials import PARTIALS, partials_shape
from hetsched.job import ArenaRef, FileOut
from hetsched.sparse import Shapes
from hetsched.store import output_files
from hetsched.transport.control import CONTROL, control_words
from hetsched.transport.device_messages import StoredArray
from hetsched.units import format_bytes
from hetsched.workload import ArraySpec, BaseWorkload, Reduction, StateArray

_MAX_DESCRIPTORS = 1 << 31
"""A descriptor's number is a C int."""


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
            *(whole(array.name, state_shape(array, load), array.dtype) for array in self.state),
            *(
                whole(PARTIALS + each.name, partials_shape(each, slots), each.dtype)
                for each in self.reductions
            ),
            whole(CONTROL, (control_words(slots),), "int32"),
        )


def whole(name: str, shape: tuple[int, ...], dtype: str) -> ArraySpec:
    """Return an array that isn't split between devices."""
    return ArraySpec(name, "resident", shape, dtype)


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
    """A job bound to arrays and devices; it can run while its files are open.

    `close` releases these.
    """

    declaration: Declaration | None = None  # Shared by jobs of one kind
    devices: tuple[str, ...] = ()  # That it may use
    # The `key` of an input is a segment's id, the `file_key` of a file, or LOADED_KEY
    inputs: dict[str, StoredArray] = field(default_factory=dict)
    generate: list[ArraySpec] = field(default_factory=list)
    into: dict[str, ArenaRef | None] = field(default_factory=dict)  # None: a new segment
    targets: dict[str, FileOut] = field(default_factory=dict)  # Outputs that become files
    outputs: dict[str, output_files.OutputFile] = field(default_factory=dict)
    files: set[int] = field(default_factory=set)  # Descriptors of inputs
    loaded: dict[str, np.ndarray] = field(default_factory=dict)  # From files that aren't .npy
    notes: list[str] = field(default_factory=list)  # For the report
    measure: dict[str, str] = field(default_factory=dict)
    converted: bool = False  # An input's dtype or order differs from the kernels'
    in_files: bool = False  # An array is stored in a file; still true after `close`
    # Identifies the job and its inputs beside finished parts of its outputs; "": these aren't kept
    parts_identity: str = ""
    finished: output_files.Ranges = ()  # Units that an earlier daemon has completed
    keeps_parts: bool = False  # `close` leaves unfinished outputs for the next daemon
    owner: Hashable = None  # Of whom the memory of its arrays may have earlier data
    # What was found when it was submitted; paths with their links resolved
    claims: tuple[output_files.OutputClaim, ...] = ()
    input_paths: tuple[str, ...] = ()
    input_bytes: int = 0
    checkpoint: str = ""

    @property
    def kind(self) -> str:
        """The kind of job in records of failures."""
        return f"{self.workload.name} {self.speed_key}".strip()

    @property
    def storage(self) -> str:
        """The location of the arrays, for the keys of models."""
        if self.iterative is not None:
            return "memory"
        storage = "file" if self.in_files else "memory"
        return f"{storage}, converted" if self.converted else storage

    @property
    def results_in_state(self) -> set[str]:
        """Outputs for which the memory of a state array serves."""
        results = () if self.iterative is None else self.iterative.results
        return {name for name in results if self.into.get(name, name) is None}

    @property
    def copied_inputs(self) -> tuple[str, ...]:
        """Inputs of an iterative job that aren't in memory as its kernels expect them."""
        if self.iterative is None:
            return ()
        return tuple(
            spec.name
            for spec in self.specs
            if (stored := self.inputs.get(spec.name)) is not None and not is_plain(stored, spec)
        )

    def publish(self) -> None:
        """Give the output files their names."""
        output_files.publish_or_discard(self.prepare(sync=False), sync=False)

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

    def close(self) -> None:
        """Close the input files and discard unpublished outputs. Idempotent."""
        self.loaded.clear()
        for output in self.outputs.values():
            if self.keeps_parts:
                output.leave()
            else:
                output.discard()
        while self.files:
            os.close(self.files.pop())

    def close_files(self, step: Step) -> None:
        """Close in a thread: closing a file may block."""
        step.enter(f"closing the files of a job of {self.workload.name}")
        self.close()


_file_numbers = itertools.count()


def file_key(fd: int) -> int:
    """Return another key for an open file: negative, unlike a segment's id, and never used twice.

    A descriptor's number alone isn't one: it belongs to the next file as soon as this one is
    closed, while device processes still have this one attached.
    """
    return -1 - (next(_file_numbers) * _MAX_DESCRIPTORS + fd)


def fd_of_key(key: int) -> int | None:
    """Return the fd behind a key; None for a segment."""
    return (-1 - key) % _MAX_DESCRIPTORS if key < 0 else None


def is_plain(stored: StoredArray, spec: ArraySpec) -> bool:
    """Return whether an input is in the arena, in the kernels' dtype, order and alignment."""
    dtype = np.dtype(spec.dtype)
    return (
        stored.key >= 0
        and np.dtype(stored.dtype) == dtype
        and stored.order == "C"
        and stored.offset % dtype.itemsize == 0
    )


def array_bytes(spec: ArraySpec, load: int) -> int:
    """Return the bytes of the whole array, in the kernels' dtype."""
    return math.prod(spec.shape(load)) * np.dtype(spec.dtype).itemsize


def kernel_layout(
    spec: ArraySpec, load: int, key: int, *, output: bool, offset: int = 0
) -> StoredArray:
    """Return the record of an array stored in the kernels' dtype and order."""
    return StoredArray(
        array=spec.name,
        key=key,
        shape=spec.shape(load),
        dtype=np.dtype(spec.dtype).str,
        offset=offset,
        output=output,
    )


def not_saving_note(saved: Sequence[ArraySpec]) -> str:
    """Return why GPUs copy their rows to the host after each iteration."""
    nbytes = sum(array_bytes(array, 1) for array in saved)
    return (
        f"GPUs store their rows after each iteration: no room in shared memory for"
        f" {format_bytes(nbytes)} to save them in (arena.limit in the config)"
    )
