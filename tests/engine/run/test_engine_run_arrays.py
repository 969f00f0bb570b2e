"""The segments of an iterative job, and copies between them and files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import pytest
from diffusing_workload import Diffusion, DiffusionParams

from hetsched.device import DeviceInfo
from hetsched.engine.admission.check import MachineLimits, resolve
from hetsched.engine.admission.resolved_job import ResolvedJob, declare_iterative
from hetsched.engine.processes.fleet import Fleet
from hetsched.engine.run.arrays import JobArrays
from hetsched.errors import DataError, UsageError
from hetsched.job import JobSpec
from hetsched.transport.arena import Arena
from hetsched.workload import ArraySpec, Stage, StateArray

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


def test_a_result_in_a_state_array_needs_no_room_of_its_own() -> None:
    params = {"grid": "1000x100", "dtype": "float64"}
    limits = MachineLimits(CORES, {}, 2_800_000)  # bytes: 1.6 million for both buffers, 0.8 each

    assert resolve(JobSpec(workload="heat", params=params), limits).generate
    params["tolerance"] = "1e-3"
    with pytest.raises(DataError, match="shared memory"):
        resolve(JobSpec(workload="heat", params=params), limits)


# ---- admission


X = ArraySpec("x", "split", (4,), "float64")


@pytest.mark.parametrize(
    ("method", "what", "message"),
    [
        ("state", [StateArray("u", (5,), "float64", 1, result="y")], "can't be the result 'y'"),
        ("arrays", (X, X), r"two arrays have the same name \(x, x, u, means\)"),
        ("arrays", (ArraySpec("z", "inout", (1,), "float64"),), "has no inout arrays"),
        (
            "finish",
            [Stage(name, ("u",), reductions=("total",)) for name in ("first", "second")],
            "diffusion: reduction 'total' belongs to two stages",
        ),
        ("max_iterations", 0, r"max_iterations\(\) is 0; it must be at least 1"),
    ],
)
def test_impossible_declarations_are_refused(method: str, what: Any, message: str) -> None:
    wrong = type("Wrong", (Diffusion,), {method: lambda *_: what})
    with pytest.raises(UsageError, match=message):
        declare_iterative(wrong(), DiffusionParams())


class NoFleet:
    """No process has a segment attached."""

    def detach(self, keys: list[int]) -> None:
        assert keys == []
