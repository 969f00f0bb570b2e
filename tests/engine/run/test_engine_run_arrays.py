"""The segments of an iterative job, and copies between them and files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from diffusing_workload import Diffusion, DiffusionParams

from hetsched.device import DeviceInfo
from hetsched.engine.admission.bind import MachineLimits, create_outputs
from hetsched.engine.admission.check import resolve
from hetsched.engine.admission.declare import declare, declare_iterative
from hetsched.engine.admission.resolved_job import ResolvedJob
from hetsched.engine.processes.fleet import Fleet
from hetsched.engine.run.arrays import IterativeArrays
from hetsched.engine.threads import Step
from hetsched.errors import Cancelled, DataError, IOFailure, UsageError
from hetsched.job import ArenaOut, ArenaRef, FileOut, FileRef, Generated, JobSpec
from hetsched.transport.arena import Arena
from hetsched.workload import ArraySpec, Stage, StateArray, find

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


def allocated(arena: Arena, **fields: Any) -> IterativeArrays:
    job = resolve(spec(**fields), MachineLimits(CORES, {}, arena.limit))
    create_outputs(job, spec(**fields))
    arrays = IterativeArrays(job, arena)
    arrays.allocate()
    return arrays


def view(arena: Arena, arrays: IterativeArrays, name: str) -> np.ndarray:
    (stored,) = [each for each in arrays.stored if each.array == name]
    return arena.segment(stored.key).array(stored.shape, stored.dtype, stored.offset)


def test_a_job_has_its_inputs_outputs_state_partials_and_control(arena: Arena) -> None:
    arrays = allocated(arena)
    shapes = {stored.array: stored.shape for stored in arrays.stored}
    assert shapes["x"] == shapes["y"] == (ROWS, 4)
    assert shapes["u"] == (2, ROWS + 2, 4)
    assert shapes["partials/total"] == (2, 3, 4)
    assert arrays.control.finished([0, 1]) == -1
    assert arrays.loads() is None
    assert arrays.saves() is None


def test_results_have_the_order_of_the_declaration(arena: Arena) -> None:
    limits = MachineLimits(CORES, {}, arena.limit)
    arrays = IterativeArrays(
        resolve(JobSpec(workload="heat", params={"grid": "4x4"}), limits), arena
    )
    arrays.allocate()
    assert list(arrays.hand_over()) == ["final", "steps"], "one is in a state array's memory"


def gpu_job(limit: int) -> ResolvedJob:
    gpu = DeviceInfo(name="gpu0", kind="cuda", identity="gpu", link=True, memory=1 << 30)
    return resolve(spec(), MachineLimits([*CORES, gpu], {}, limit))


def names(arrays: IterativeArrays) -> set[str]:
    return {stored.array for stored in arrays.stored if stored.array.startswith("saved/")}


def test_rows_of_a_gpu_are_saved_if_there_is_room(arena: Arena) -> None:
    arrays = IterativeArrays(gpu_job(arena.limit), arena)
    arrays.allocate()
    assert (names(arrays), arrays.notes) == ({"saved/u"}, [])


def test_without_room_in_an_arena_in_use_they_are_not_and_the_job_runs(arena: Arena) -> None:
    whole = IterativeArrays(gpu_job(arena.limit), arena)
    whole.allocate()
    needed = sum(arena.segment(stored.key).nbytes for stored in whole.stored[:-1])
    whole.close(cast(Fleet, NoFleet()))
    held = arena.allocate(arena.limit - needed)

    arrays = IterativeArrays(gpu_job(arena.limit), arena)
    arrays.allocate()

    assert names(arrays) == set()
    assert arena.used == arena.limit, "nothing of it stays allocated"
    assert arrays.notes[0].startswith("GPUs store their rows after each iteration: no room")
    arena.release(held.id)


def test_a_state_too_large_to_be_saved_at_all_is_not() -> None:
    job = gpu_job(6000)
    assert job.iterative is not None and not job.iterative.saved
    assert job.notes[-1].startswith("GPUs store their rows after each iteration: no room")


@pytest.mark.parametrize(("dtype", "order"), [("float64", "C"), ("float32", "F"), (">f8", "C")])
def test_input_files_are_copied_as_kernels_expect_them(
    arena: Arena, tmp_path: Path, dtype: str, order: Any
) -> None:
    x = np.arange(ROWS * 4.0).reshape(ROWS, 4)
    np.save(tmp_path / "x.npy", np.asarray(x, dtype=dtype, order=order))
    arrays = allocated(arena, inputs={"x": FileRef(str(tmp_path / "x.npy"))})
    loads = arrays.loads()
    assert loads is not None
    loads.run(Step())
    assert np.array_equal(view(arena, arrays, "x"), x)


def test_an_array_of_the_kernels_dtype_is_used_in_place(arena: Arena) -> None:
    segment = arena.allocate(ROWS * 4 * 8)
    arrays = allocated(arena, inputs={"x": ArenaRef(segment.id, (ROWS, 4), "float64")})
    assert arrays.loads() is None
    assert next(each for each in arrays.stored if each.array == "x").key == segment.id


def test_an_array_of_another_dtype_is_copied(arena: Arena) -> None:
    segment = arena.allocate(ROWS * 4 * 4)
    segment.array((ROWS, 4), "float32")[...] = 2.5
    arrays = allocated(arena, inputs={"x": ArenaRef(segment.id, (ROWS, 4), "float32")})
    loads = arrays.loads()
    assert loads is not None
    loads.run(Step())
    assert (view(arena, arrays, "x") == 2.5).all()


def test_values_beyond_the_kernels_dtype_become_infinite_without_a_warning(arena: Arena) -> None:
    segment = arena.allocate(4 * 4 * 8)
    segment.array((4, 4), "float64")[...] = 1e200
    inputs = {"initial": ArenaRef(segment.id, (4, 4), "float64")}
    heat = JobSpec(workload="heat", params={"dtype": "float32"}, inputs=inputs)
    arrays = IterativeArrays(resolve(heat, MachineLimits(CORES, {}, arena.limit)), arena)
    arrays.allocate()
    loads = arrays.loads()
    assert loads is not None
    loads.run(Step())
    assert np.isinf(view(arena, arrays, "initial")).all()


def heat(arena: Arena, steps: int, **fields: Any) -> IterativeArrays:
    params = {"grid": "5x4", "steps": steps, "dtype": "float64"}
    spec = JobSpec(workload="heat", params=params, inputs={"initial": Generated()}, **fields)
    job = resolve(spec, MachineLimits(CORES, {}, arena.limit))
    create_outputs(job, spec)
    arrays = IterativeArrays(job, arena)
    arrays.allocate()
    return arrays


@pytest.mark.parametrize("steps", [6, 7])
def test_a_result_may_be_the_rows_of_a_state_array(arena: Arena, steps: int) -> None:
    arrays = heat(arena, steps)
    view(arena, arrays, "u")[steps % 2, 1:-1] = np.arange(20.0).reshape(5, 4)
    assert arrays.nbytes == arena.used

    results = arrays.hand_over()
    arrays.close(cast(Fleet, NoFleet()))

    ref = results["final"]
    segment = arena.segment(ref.segment)
    assert np.array_equal(
        segment.array(ref.shape, ref.dtype, ref.offset), np.arange(20.0).reshape(5, 4)
    )
    assert arena.used == sum(arena.segment(each.segment).nbytes for each in results.values())
    for each in results.values():
        arena.release(each.segment)
    assert arena.used == 0


def test_a_result_in_a_state_array_needs_no_room_of_its_own() -> None:
    params = {"grid": "1000x100", "dtype": "float64"}
    inputs = {"initial": Generated()}
    limits = MachineLimits(CORES, {}, 2_800_000)  # bytes: 1.6 million for both buffers, 0.8 each

    assert resolve(JobSpec(workload="heat", params=params, inputs=inputs), limits).generate
    params["tolerance"] = "1e-3"
    with pytest.raises(DataError, match="shared memory"):
        resolve(JobSpec(workload="heat", params=params, inputs=inputs), limits)


def test_a_result_for_the_callers_array_or_a_file_is_apart(arena: Arena, tmp_path: Path) -> None:
    into = ArenaRef(arena.allocate(5 * 4 * 8).id, (5, 4), "float64")
    targets = ArenaOut(into), FileOut(str(tmp_path / "final.npy"))

    for target in targets:
        arrays = heat(arena, 6, outputs={"final": target})
        keys = {stored.array: stored.key for stored in arrays.stored}
        assert keys["final"] != keys["u"]
        arrays.close(cast(Fleet, NoFleet()))


def test_a_result_of_a_job_of_unknown_length_is_apart(arena: Arena) -> None:
    params = {"grid": "5x4", "tolerance": 1e-3}
    job = resolve(
        JobSpec(workload="heat", params=params, inputs={"initial": Generated()}),
        MachineLimits(CORES, {}, arena.limit),
    )
    assert job.iterative is not None
    assert job.iterative.results == {}


def test_a_state_array_that_isnt_like_its_result_is_refused() -> None:
    class Other(Diffusion):
        def state(self, p: DiffusionParams) -> list[StateArray]:
            return [StateArray("u", (5,), "float64", 1, result="y")]

    with pytest.raises(UsageError, match="can't be the result 'y'"):
        declare_iterative(Other(), DiffusionParams(rows=ROWS))


def test_one_output_is_the_result_of_one_state_array() -> None:
    class Other(Diffusion):
        def state(self, p: DiffusionParams) -> list[StateArray]:
            return [StateArray(name, (4,), "float64", result="y") for name in ("u", "v")]

    with pytest.raises(UsageError, match="state arrays 'u', 'v' all have the result 'y'"):
        declare_iterative(Other(), DiffusionParams(rows=ROWS))


def test_results_are_written_to_files(arena: Arena, tmp_path: Path) -> None:
    arrays = allocated(arena, outputs={"y": FileOut(str(tmp_path / "y.npy"))})
    view(arena, arrays, "y")[...] = np.arange(4.0)
    saves = arrays.saves()
    assert saves is not None
    saves.run(Step())
    arrays.job.publish()
    assert np.array_equal(np.load(tmp_path / "y.npy"), np.tile(np.arange(4.0), (ROWS, 1)))


def test_a_file_that_is_too_short_is_an_error(arena: Arena, tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    np.save(path, np.zeros((ROWS, 4)))
    arrays = allocated(arena, inputs={"x": FileRef(str(path))})
    with path.open("r+b") as file:
        file.truncate(200)
    loads = arrays.loads()
    assert loads is not None
    with pytest.raises(IOFailure, match="x: the file ends at byte 200"):
        loads.run(Step())


def test_copies_end_when_the_job_is_cancelled(arena: Arena, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((ROWS, 4)))
    loads = allocated(arena, inputs={"x": FileRef(str(tmp_path / "x.npy"))}).loads()
    assert loads is not None
    loads.cancel()
    with pytest.raises(Cancelled):
        loads.run(Step())


def test_a_thread_that_hangs_keeps_its_segments(arena: Arena, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((ROWS, 4)))
    arrays = allocated(arena, inputs={"x": FileRef(str(tmp_path / "x.npy"))})
    key = next(each.key for each in arrays.stored if each.array == "x")
    release = arrays.retain_copied()
    arrays.close(cast(Fleet, NoFleet()))
    assert arena.holds(key)
    release()
    assert not arena.holds(key)
    assert arena.used == 0


# ---- admission


def test_everything_counts_against_the_limit_of_shared_memory() -> None:
    machine = MachineLimits(CORES, {}, 5000)
    with pytest.raises(DataError, match=r"diffusion with 30 rows needs .* for its inputs"):
        resolve(spec(), machine)


class Odd(Diffusion):
    """A workload that declares something impossible."""

    extra = ArraySpec("u", "split", (1,), "float64")

    def arrays(self, p: DiffusionParams) -> Any:
        return (*super().arrays(p), self.extra)


class InOut(Odd):
    extra = ArraySpec("z", "inout", (1,), "float64")


class NoIterations(Diffusion):
    def max_iterations(self, p: DiffusionParams) -> int:
        return 0


class TwoStages(Diffusion):
    def finish(self, p: DiffusionParams) -> Any:
        return [Stage(name, ("u",), reductions=("total",)) for name in ("first", "second")]


@pytest.mark.parametrize(
    ("workload", "message"),
    [
        (Odd(), r"two arrays have the same name \(x, y, totals, u, u, means\)"),
        (InOut(), "an iterative workload has no inout arrays"),
        (TwoStages(), "diffusion: reduction 'total' belongs to two stages"),
        (NoIterations(), r"max_iterations\(\) is 0; it must be at least 1"),
    ],
)
def test_impossible_declarations_are_refused(workload: Diffusion, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        declare_iterative(workload, DiffusionParams())


def test_a_job_in_one_pass_declares_no_iterations() -> None:
    fft = find("fft")
    shapes = {"x": ((2, 8, 8), "complex64")}
    assert declare(JobSpec(workload="fft", params={}), fft, shapes, Step()).iterative is None


class NoFleet:
    """No process has a segment attached."""

    def detach(self, keys: list[int]) -> None:
        assert keys == []
