"""The segments that a request names."""

from __future__ import annotations

from msgspec.structs import replace

from hetsched.job import (
    ArenaOut,
    ArenaRef,
    Dependency,
    FileOut,
    FileRef,
    JobSpec,
    arena_refs,
    is_same_request,
)
from hetsched.jobs.table import JobRecord

SPEC = JobSpec(
    workload="w",
    params={"n": 1},
    inputs={"A": ArenaRef(7, (3,), "float32"), "B": FileRef("/b.npy")},
    outputs={"C": ArenaOut(ArenaRef(8, (3,), "float32")), "D": FileOut("/d.npy")},
)


def test_the_segments_of_inputs_and_of_the_callers_outputs_are_named() -> None:
    assert [ref.segment for ref in arena_refs(SPEC)] == [7, 8]


def test_only_a_request_without_the_clients_arrays_is_durable() -> None:
    files = JobSpec(workload="w", params={}, inputs={"A": FileRef("/a.npy")})
    assert JobRecord(1, files).is_durable
    assert JobRecord(1, replace(files, inputs={}, outputs={"C": ArenaOut()})).is_durable
    assert not JobRecord(1, SPEC).is_durable
    assert not JobRecord(1, replace(SPEC, inputs={})).is_durable


def test_a_jobs_arrays_may_be_in_other_segments_at_the_next_daemon() -> None:
    moved = replace(
        SPEC,
        inputs=SPEC.inputs | {"A": ArenaRef(70, (3,), "float32")},
        outputs=SPEC.outputs | {"C": ArenaOut(ArenaRef(80, (3,), "float32"))},
    )
    assert is_same_request(SPEC, moved)
    assert not is_same_request(SPEC, replace(moved, params={"n": 2}))


def test_a_volatile_job_may_have_another_number_at_the_next_daemon() -> None:
    before, after = (replace(SPEC, after=(Dependency(n),)) for n in (1, 5))
    assert is_same_request(before, after)
    assert not is_same_request(before, replace(SPEC, after=(Dependency(1, "any"),)))
    assert not is_same_request(before, SPEC)
