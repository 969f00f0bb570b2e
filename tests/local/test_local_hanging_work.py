"""Code of plug-ins and files that hang: only their own job is refused or fails."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from served import VIRTUAL
from toys import Toy

import hetsched
from hetsched.config import parse
from hetsched.engine import scheduler
from hetsched.errors import IOFailure, JobFailed, TryAgain
from hetsched.job import JobState, Running
from hetsched.store import formats
from hetsched.store.formats import open_regular
from hetsched.store.output_files import PreparedOutput

PATIENT = parse(VIRTUAL, "test")
IMPATIENT = parse(VIRTUAL + '\n[deadlines]\ndisk = "0.5s"\n', "test")
QUICK_STEPS = parse(VIRTUAL + '\n[deadlines]\nstep = "2s"\n', "test")
BEGUN, RELEASED = threading.Event(), threading.Event()


def hang() -> None:
    BEGUN.set()
    RELEASED.wait()


class Hanging(Toy):
    """Hangs when a job is checked, in the engine's process."""

    def infer(self, explicit: Any, arrays: Any) -> Any:
        hang()
        return super().infer(explicit, arrays)


@pytest.fixture(autouse=True)
def released() -> Iterator[None]:
    BEGUN.clear()
    RELEASED.clear()
    yield
    RELEASED.set()


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


def test_a_job_whose_file_hangs_at_its_turn_fails_and_the_next_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.save(tmp_path / "x.npy", np.ones((4, 8, 8), "float32"))
    with hetsched.Local(IMPATIENT, learn=False) as local:
        assert works(local)
        job = local.submit("fft", tmp_path / "x.npy", hold=True)
        monkeypatch.setattr(formats, "open_regular", lambda *args: hang())
        local.release(job.id)
        with pytest.raises(TryAgain, match=r"opening .*x.npy hasn't returned"):
            job.result(60)
        assert works(local)


def test_a_job_whose_result_may_still_appear_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, path = PreparedOutput._name, tmp_path / "y.npy"
    named = threading.Event()

    def name_late(output: PreparedOutput) -> None:
        hang()
        name(output)
        named.set()

    monkeypatch.setattr(PreparedOutput, "_name", name_late)
    with hetsched.Local(QUICK_STEPS, learn=False) as local:
        job = local.submit("toys:Toy", units=4, out=path)  # whose kernels are prepared at once
        with pytest.raises(IOFailure, match=r"y.npy hasn't returned .* may still appear there"):
            job.result(60)
        assert not path.exists()
        RELEASED.set()
        assert named.wait(60)
        assert path.exists()


def test_a_job_that_is_open_waits_for_the_one_that_overtook_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.save(tmp_path / "x.npy", np.ones((4, 8, 8), "complex64"))
    overtaking: list[Any] = []

    def open_slow(path: str, expected: str) -> int:
        hang()
        return open_regular(path, expected)

    def on_state(state: JobState) -> None:
        if isinstance(state, Running):
            RELEASED.set()

    with hetsched.Local(PATIENT, learn=False) as local:
        monkeypatch.setattr(scheduler, "SLOW_OPENING_SECONDS", 0.01)
        slow = local.submit("fft", tmp_path / "x.npy", hold=True)
        monkeypatch.setattr(formats, "open_regular", open_slow)
        local.release(slow.id)
        assert BEGUN.wait(60)
        overtaking += [local.submit("fft", batch="64x32x32", follow=on_state) for _ in range(5)]
        assert slow.result(60).shape == (4, 8, 8)
        assert [job.result(60).shape for job in overtaking] == [(64, 32, 32)] * 5


def test_submissions_in_progress_are_answered_when_the_engine_stops() -> None:
    local = hetsched.Local(PATIENT, learn=False)
    slow = in_background(lambda: local.submit(f"{__name__}:Hanging"))
    assert BEGUN.wait(60)
    closing = in_background(local.close)
    with pytest.raises(TryAgain, match="stopping"):
        slow.result(60)
    RELEASED.set()
    closing.result(60)
