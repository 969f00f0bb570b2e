"""The arena segments that a job's request names, and what follows from them. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from hetsched.job import ArenaOut, ArenaRef, JobSpec


def arena_refs(spec: JobSpec) -> list[ArenaRef]:
    """Return the inputs and the caller's own outputs that are in shared memory."""
    refs = [ref for ref in spec.inputs.values() if isinstance(ref, ArenaRef)]
    for target in spec.outputs.values():
        if isinstance(target, ArenaOut) and target.into is not None:
            refs.append(target.into)
    return refs


def is_durable(spec: JobSpec) -> bool:
    """Return whether the job can run without its client: no array of it is in shared memory."""
    return not arena_refs(spec)


def with_segments(spec: JobSpec, segments: Mapping[int, int]) -> JobSpec:
    """Return `spec` with other segments in place of its own; `segments`: old -> new."""

    def moved(ref: ArenaRef) -> ArenaRef:
        return replace(ref, segment=segments[ref.segment])

    inputs = {
        name: moved(ref) if isinstance(ref, ArenaRef) else ref for name, ref in spec.inputs.items()
    }
    outputs = {
        name: ArenaOut(moved(out.into)) if isinstance(out, ArenaOut) and out.into else out
        for name, out in spec.outputs.items()
    }
    return replace(spec, inputs=inputs, outputs=outputs)


def shapes(spec: JobSpec) -> dict[str, str]:
    """Return e.g. {"A": "512x512 float64"} for the inputs in shared memory."""
    if not spec.inputs:
        return {}
    return {
        name: f"{'x'.join(map(str, ref.shape)) or 'scalar'} {ref.dtype}"
        for name, ref in spec.inputs.items()
        if isinstance(ref, ArenaRef)
    }


def is_same_request(one: JobSpec, other: JobSpec) -> bool:
    """Return whether two requests are the same but for what changes at the next daemon.

    That are the segments that hold their arrays, and the numbers of volatile jobs before them.
    """
    return one == other or _unnumbered(one) == _unnumbered(other)


def _unnumbered(spec: JobSpec) -> JobSpec:
    after = tuple(replace(dependency, job=0) for dependency in spec.after)
    return replace(with_segments(spec, {ref.segment: 0 for ref in arena_refs(spec)}), after=after)
