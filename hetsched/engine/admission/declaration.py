"""What the code of a plug-in says about one kind of job.

This code may be slow or hang, so it never runs on the event loop. Its methods are pure, so that
for a job like an earlier one their results are known: it is admitted on the loop.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from hetsched.engine.admission.iterative_declaration import (
    IterativeDeclaration,
    declare_iterative,
)
from hetsched.engine.threads.step import Step
from hetsched.errors import UsageError
from hetsched.job import ArenaRef, FileOut, FileRef, JobSpec
from hetsched.units import NUMBER_LIMIT
from hetsched.workload import ArraySpec, BaseWorkload, find, locate

BYTES_PER_DECLARATION = 1024
"""Estimate for a declaration besides its parameters, which are as long as the key."""

Shapes = Mapping[str, tuple[tuple[int, ...], str]]
"""Input name -> (shape, dtype name)."""


@dataclass(frozen=True, eq=False)
class Declaration:
    """A workload and its parameters, load and arrays for inputs of these shapes.

    `reference` is its module:qualname, for device processes; `iterative`: None if it is computed
    in one pass.
    """

    workload: BaseWorkload
    reference: str
    shapes: Shapes
    params: Any
    load: int
    speed_key: str
    specs: tuple[ArraySpec, ...]
    iterative: IterativeDeclaration | None = None


def load_workload(name: str, step: Step) -> BaseWorkload:
    """Return the workload `name`; the first time its module is imported. Raises UsageError."""
    step.enter(f"loading the workload {name:.100}")
    return find(name)


def declare(spec: JobSpec, workload: BaseWorkload, shapes: Shapes, step: Step) -> Declaration:
    """Derive parameters, load and arrays from the request and the shapes of its inputs.

    Raises
    ------
    UsageError, DataError
    """
    step.enter(f"the code of the workload {workload.name}", is_interruptible=True)
    params = workload.infer(spec.params, shapes)
    _check_whole_numbers(params)
    load, arrays = workload.load(params), tuple(workload.arrays(params))
    if load < 1:
        raise UsageError(f"{workload.name}: a load of {load} units; it must be at least 1")
    iterative = declare_iterative(workload, params)
    reference, speed_key = locate(spec.workload), workload.speed_key(params)
    return Declaration(workload, reference, shapes, params, load, speed_key, arrays, iterative)


def _check_whole_numbers(params: msgspec.Struct) -> None:
    """Raise UsageError for a number that neither the journal nor a message can hold."""
    for name in params.__struct_fields__:
        value = getattr(params, name)
        if isinstance(value, int) and not -NUMBER_LIMIT <= value < NUMBER_LIMIT:
            bits = value.bit_length()
            raise UsageError(f"{name}: a number of {bits} bits; the maximum is 63")


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
