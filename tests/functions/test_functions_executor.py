"""`Executor`, by itself and below Dask and joblib; jobs in `as_completed` and `await`."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import CancelledError

import numpy as np
import pytest

import hetsched
from hetsched.functions.session import session

X = np.arange(24.0).reshape(6, 4)


def nested(row: np.ndarray) -> tuple[float, bool]:
    return float(hetsched.map(np.sqrt, row).sum()), session.is_busy()


def test_calls_run_at_once_and_a_map_within_one_stays_in_its_thread() -> None:
    together = threading.Barrier(2, timeout=60)
    with hetsched.Executor(2) as executor:
        assert len(list(executor.map(lambda number: together.wait(), range(2)))) == 2
        found = list(executor.map(nested, X))
    assert found == [(np.sqrt(row).sum(), True) for row in X]
    assert not session.is_busy()


def test_an_error_is_the_callers_and_frees_the_cores() -> None:
    with hetsched.Executor() as executor, pytest.raises(ZeroDivisionError):
        executor.submit(lambda: 1 / 0).result(timeout=60)
    assert not session.is_busy()


@pytest.mark.parametrize("cores", [0, -1, True, "2", 1.5])
def test_a_wrong_number_of_cores_is_refused(cores: object) -> None:
    with pytest.raises(hetsched.UsageError, match="cores"):
        hetsched.Executor(cores)  # type: ignore[arg-type]


def test_dask_computes_on_it() -> None:
    dask = pytest.importorskip("dask")
    array = pytest.importorskip("dask.array")
    names: set[str] = set()

    def square(block: np.ndarray) -> np.ndarray:
        names.add(threading.current_thread().name.rpartition("_")[0])
        return block**2

    with hetsched.Executor(2) as executor, dask.config.set(scheduler=executor):
        lazy = array.from_array(X, chunks=(2, 4)).map_blocks(square, meta=X[:0])
        assert np.array_equal(lazy.compute(), X**2)
    assert names == {"hetsched-call"}


class TestJoblib:
    @pytest.fixture(autouse=True)
    def joblib(self) -> object:
        joblib = pytest.importorskip("joblib")
        hetsched.register_joblib()
        return joblib

    @pytest.mark.parametrize("jobs", [None, 1, 2, -1, -100])
    def test_calls_and_calls_within_them(self, joblib, jobs: int | None) -> None:  # type: ignore[no-untyped-def]
        def outer(row: np.ndarray) -> float:
            parts = joblib.Parallel()(joblib.delayed(float)(value) for value in row)
            return float(sum(parts))

        with joblib.parallel_config(backend="hetsched", n_jobs=jobs):
            found = joblib.Parallel()(joblib.delayed(outer)(row) for row in X)
        assert found == list(X.sum(1))

    def test_an_error_ends_the_calls(self, joblib) -> None:  # type: ignore[no-untyped-def]
        with joblib.Parallel(backend="hetsched", n_jobs=2) as parallel:
            with pytest.raises(ZeroDivisionError):
                parallel([joblib.delayed(divmod)(1, 0)])  # of more it may give rests to the next
            assert parallel(joblib.delayed(abs)(n) for n in (-1, -2)) == [1, 2]
        with (
            pytest.raises(ZeroDivisionError),
            joblib.parallel_config(backend="hetsched", n_jobs=2),
        ):
            joblib.Parallel()(joblib.delayed(divmod)(1, n) for n in (1, 0, *range(1, 50)))
        with joblib.parallel_config(backend="hetsched", n_jobs=0), pytest.raises(ValueError):
            joblib.Parallel()(joblib.delayed(abs)(n) for n in (1, 2))


@pytest.mark.parametrize("engine", ["cores"], indirect=True)
def test_jobs_can_be_had_as_they_end_and_awaited(engine: str) -> None:
    local = session.local()
    jobs = [local.submit("fft", batch=(n, 32, 32)) for n in (1, 2, 3)]
    assert set(hetsched.as_completed([*jobs, jobs[0]], timeout=60)) == set(jobs)

    async def several() -> list[np.ndarray]:
        return await asyncio.gather(*(local.submit("fft", X.reshape(1, 6, 4)) for _ in range(3)))

    for y in asyncio.run(several()):
        assert np.allclose(y, np.fft.fft2(X))


@pytest.mark.parametrize("engine", ["cores"], indirect=True)
def test_waits_are_bounded_and_a_cancelled_task_cancels_its_job(engine: str) -> None:
    local = session.local()
    job = local.submit("fft", batch=(4, 32, 32), hold=True)
    with pytest.raises(hetsched.WaitTimeout, match=r"1 job of 1 not ended after 0\.01 s"):
        list(hetsched.as_completed([job], timeout=0.01))

    with pytest.raises(TimeoutError):
        asyncio.run(wait_for(job))
    with pytest.raises(CancelledError):
        job.result(timeout=60)


async def wait_for(job: hetsched.Job) -> None:
    await asyncio.wait_for(job, 0.01)
