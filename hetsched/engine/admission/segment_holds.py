"""Arena segments of a job request: checked, and retained from submission to the job's end."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import numpy as np

from hetsched.errors import DataError
from hetsched.job import ArenaRef, JobSpec
from hetsched.job_segments import arena_refs
from hetsched.transport.arena import Arena


def hold_segments(arena: Arena, spec: JobSpec) -> list[int]:
    """Retain every segment named in `spec`, or none on error; return the segments.

    Raises
    ------
    DataError
        A segment isn't in the arena, or is too small for its array.
    """
    segments: list[int] = []
    try:
        for ref in arena_refs(spec):
            _check(arena, ref)
            arena.retain(ref.segment)
            segments.append(ref.segment)
    except Exception:
        release_segments(arena, segments)
        raise
    return segments


def hold_attached(arena: Arena, keys: Iterable[int]) -> Callable[[], None]:
    """Retain the segments among the attachments `keys` of a process that can't be stopped.

    Their memory must not become another job's while it may still be written to. Returns a function
    that releases them.
    """
    segments = [key for key in keys if arena.holds(key)]
    for segment in segments:
        arena.retain(segment)
    return lambda: release_segments(arena, segments)


def release_segments(arena: Arena, segments: Iterable[int]) -> None:
    """Undo `hold_segments`."""
    for segment in segments:
        arena.release(segment)


def _check(arena: Arena, ref: ArenaRef) -> None:
    if not arena.holds(ref.segment):
        raise DataError(f"segment {ref.segment} is not in the arena; it may have been released")
    try:
        size = math.prod(ref.shape) * np.dtype(ref.dtype).itemsize
    except Exception:  # NumPy's parser raises various exceptions for a client's text
        raise DataError(f"{ref.dtype!r} is not a dtype") from None
    capacity = arena.segment(ref.segment).nbytes
    if min(ref.shape, default=1) < 0 or ref.offset < 0 or ref.offset + size > capacity:
        raise DataError(
            f"an array of {size} bytes at offset {ref.offset} is outside segment {ref.segment},"
            f" which has {capacity} bytes"
        )
