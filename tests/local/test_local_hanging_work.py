"""Code of plug-ins and files that hang: only their own job is refused or fails."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import hanging_workload
import numpy as np
import pytest
from virtual_machine import VIRTUAL

import hetsched
from hetsched.config import parse
from hetsched.engine import scheduler
from hetsched.engine.admission import files
from hetsched.errors import JobFailed, TryAgain
from hetsched.job import JobState, Running
from hetsched.store.input_files import open_npy

PATIENT = parse(VIRTUAL, "test")
IMPATIENT = parse(VIRTUAL + '\n[deadlines]\ndisk = "0.5s"\n', "test")
TIGHT = parse(VIRTUAL + '\n[arena]\nlimit = "4MiB"\n', "test")
INFER, VARIANTS = "hanging_workload:HangingInfer", "hanging_workload:HangingVariants"
WAITING_JOBS = 400


@pytest.fixture(autouse=True)
def released() -> Iterator[None]:
    hanging_workload.BEGUN.clear()
    hanging_workload.RELEASED.clear()
    yield
    hanging_workload.RELEASED.set()


def in_background(function: Any) -> Future[Any]:
    """Call `function` in a thread."""
    answer: Future[Any] = Future()

    def call() -> None:
        try:
            answer.set_result(function())
        except BaseException as error:
            answer.set_exception(error)

    threading.Thread(target=call, daemon=True).start()
    return answer


def works(local: hetsched.Local) -> bool:
    """Whether a job is done. An impatient engine on a slow machine may give up some."""
    for _ in range(20):
        with contextlib.suppress(JobFailed, TryAgain):
            return bool(local.submit("fft", batch="4x8x8").result(60).shape == (4, 8, 8))
    return False


def test_a_slow_plug_in_delays_no_other_job() -> None:
    with hetsched.Local(PATIENT, learn=False) as local:
        slow = in_background(lambda: local.submit(INFER))
        assert hanging_workload.BEGUN.wait(60)
        assert works(local)
        assert not slow.done()
        hanging_workload.RELEASED.set()
        assert slow.result(60).id


def test_a_plug_in_that_hangs_is_refused_by_name() -> None:
    with hetsched.Local(IMPATIENT, learn=False) as local:
        assert works(local)
        with pytest.raises(TryAgain, match=r"the code of the workload hanging_infer hasn't ret"):
            local.submit(INFER)
        assert works(local)


def test_a_planner_that_hangs_fails_its_job_only() -> None:
    with hetsched.Local(IMPATIENT, learn=False) as local:
        assert works(local)
        with pytest.raises(JobFailed, match=r"planning hasn't finished within 0.5 s"):
            local.submit(VARIANTS).result(60)
        assert works(local)


def test_a_file_that_hangs_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.save(tmp_path / "x.npy", np.ones((4, 8, 8), "complex64"))

    def open_dead(path: str) -> Any:
        hanging_workload.hang()
        return open_npy(path)

    with hetsched.Local(IMPATIENT, learn=False) as local:
        assert works(local)
        monkeypatch.setattr(files, "open_npy", open_dead)
        with pytest.raises(TryAgain, match=r"opening .*x.npy hasn't returned for 0.5 s"):
            local.submit("fft", tmp_path / "x.npy")
        assert works(local)


def test_a_job_whose_file_hangs_at_its_turn_fails_and_the_next_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.save(tmp_path / "x.npy", np.ones((4, 8, 8), "complex64"))
    with hetsched.Local(IMPATIENT, learn=False) as local:
        assert works(local)
        job = local.submit("fft", tmp_path / "x.npy", hold=True)
        monkeypatch.setattr(files, "open_npy", lambda path: hanging_workload.hang())
        local.release(job.id)
        with pytest.raises(TryAgain, match=r"opening .*x.npy hasn't returned"):
            job.result(60)
        assert works(local)


def test_other_jobs_run_while_a_file_hangs_and_its_job_after_it_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.save(tmp_path / "x.npy", np.ones((4, 8, 8), "complex64"))

    def open_slow(path: str) -> Any:
        hanging_workload.hang()
        return open_npy(path)

    with hetsched.Local(PATIENT, learn=False) as local:
        monkeypatch.setattr(scheduler, "SLOW_OPENING_SECONDS", 0.01)
        slow = local.submit("fft", tmp_path / "x.npy", hold=True)
        monkeypatch.setattr(files, "open_npy", open_slow)
        local.release(slow.id)
        assert hanging_workload.BEGUN.wait(60)
        for _ in range(3):
            assert works(local)
        assert not slow.done()
        hanging_workload.RELEASED.set()
        assert slow.result(60).shape == (4, 8, 8)


def test_a_job_that_is_open_waits_for_the_one_that_overtook_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.save(tmp_path / "x.npy", np.ones((4, 8, 8), "complex64"))
    overtaking: list[Any] = []

    def open_slow(path: str) -> Any:
        hanging_workload.hang()
        return open_npy(path)

    def on_state(state: JobState) -> None:
        if isinstance(state, Running):
            hanging_workload.RELEASED.set()

    with hetsched.Local(PATIENT, learn=False) as local:
        monkeypatch.setattr(scheduler, "SLOW_OPENING_SECONDS", 0.01)
        slow = local.submit("fft", tmp_path / "x.npy", hold=True)
        monkeypatch.setattr(files, "open_npy", open_slow)
        local.release(slow.id)
        assert hanging_workload.BEGUN.wait(60)
        overtaking += [local.submit("fft", batch="64x32x32", follow=on_state) for _ in range(5)]
        assert slow.result(60).shape == (4, 8, 8)
        assert [job.result(60).shape for job in overtaking] == [(64, 32, 32)] * 5


def test_a_job_whose_file_hangs_can_be_cancelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.save(tmp_path / "x.npy", np.ones((4, 8, 8), "complex64"))
    with hetsched.Local(PATIENT, learn=False) as local:
        job = local.submit("fft", tmp_path / "x.npy", hold=True)
        monkeypatch.setattr(files, "open_npy", lambda path: hanging_workload.hang())
        local.release(job.id)
        assert hanging_workload.BEGUN.wait(60)
        job.cancel()
        assert works(local)
        assert job.cancelled()
        hanging_workload.RELEASED.set()


def test_submissions_in_progress_are_answered_when_the_engine_stops() -> None:
    local = hetsched.Local(PATIENT, learn=False)
    slow = in_background(lambda: local.submit(INFER))
    assert hanging_workload.BEGUN.wait(60)
    closing = in_background(local.close)
    with pytest.raises(TryAgain, match="stopping"):
        slow.result(60)
    hanging_workload.RELEASED.set()
    closing.result(60)


def test_many_jobs_that_are_refused_their_memory_at_their_turn_stop_nothing() -> None:
    with hetsched.Local(TIGHT, learn=False) as local:
        first = local.submit("fft", batch="1x8x8", hold=True)
        waiting = [
            local.submit("fft", batch="4096x8x8", dtype="complex64", after=f"{first.id}:any")
            for _ in range(WAITING_JOBS)
        ]
        taken = local.empty(((4 << 20) - (128 << 10),), "uint8")
        local.release(first.id)
        for job in waiting:
            with pytest.raises(TryAgain, match="of shared memory"):
                job.result(60)
        del taken
        assert works(local)
