"""The segments of an iterative job."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import pytest

from hetsched.device import DeviceInfo
from hetsched.engine.admission.check import MachineLimits, resolve
from hetsched.engine.admission.resolved_job import ResolvedJob
from hetsched.engine.processes.fleet import Fleet
from hetsched.engine.run.arrays import JobArrays
from hetsched.job import JobSpec
from hetsched.transport.arena import Arena

ROWS = 30
NAME = "diffusing_workload:Diffusion"
CORES = tuple(DeviceInfo(name=f"cpu{i}", kind="cpu", identity="core") for i in range(2))


@pytest.fixture
def arena() -> Iterator[Arena]:
    arena = Arena(16 << 20)
    yield arena
    arena.close()


def spec(**fields: Any) -> JobSpec:
    return JobSpec(workload=NAME, params={"rows": ROWS}, **fields)


def gpu_job(limit: int) -> ResolvedJob:
    gpu = DeviceInfo(name="gpu0", kind="cuda", identity="gpu", link=True, memory=1 << 30)
    return resolve(spec(), MachineLimits([*CORES, gpu], {}, limit))


def names(arrays: JobArrays) -> set[str]:
    return {stored.array for stored in arrays.stored if stored.array.startswith("saved/")}


def test_without_room_in_an_arena_in_use_they_are_not_and_the_job_runs(arena: Arena) -> None:
    whole = JobArrays(gpu_job(arena.limit), arena)
    whole.place()
    needed = sum(arena.segment(stored.key).nbytes for stored in whole.stored[:-1])
    whole.close(cast(Fleet, NoFleet()))
    held = arena.allocate(arena.limit - needed)

    arrays = JobArrays(gpu_job(arena.limit), arena)
    arrays.place()

    assert names(arrays) == set()
    assert arena.used == arena.limit, "nothing of it stays allocated"
    assert arrays.notes[0].startswith("GPUs store their rows after each iteration: no room")
    arena.release(held.id)


class NoFleet:
    """No process has a segment attached."""

    def detach(self, keys: list[int]) -> None:
        assert keys == []
