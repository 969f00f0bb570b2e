"""An exception in our own code fails the job in whose stage it was raised, and no other."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

import hetsched
from hetsched.client.job import Job
from hetsched.config import parse
from hetsched.dispatch import Dispatcher
from hetsched.engine.run import runner
from hetsched.engine.run.arrays import JobArrays
from hetsched.errors import ErrorRecord, InternalError, TryAgain
from hetsched.job import FileOut, JobSpec

QUEUE = 1100
MACHINE = f"""
[queue]
limit = {QUEUE + 10}

[[device]]
kind = "emulated"
clock = "virtual"
memory = "1MiB"
compute = {{ unit = "20us" }}
h2d = {{ unit = "20us" }}
d2h = {{ unit = "20us" }}
"""
STAGES: dict[str, tuple[Any, str]] = {
    "place": (JobArrays, "place"),
    "plan, in the planner's thread": (runner, "next_plan"),
    "prepare": (JobArrays, "prepare_message"),
    "dispatch": (Dispatcher, "commands"),
    "report": (runner, "job_report"),
}
"""Stage -> a function that it calls: a class or module, and the name there."""


class Raising:
    """A function that raises when it is called for the first time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> None:
        self.calls = 0
        original = getattr(owner, name)

        def raising(*arguments: Any, **named: Any) -> Any:
            self.calls += 1
            if self.calls == 1:
                raise ZeroDivisionError(f"{name} divides by zero")
            return original(*arguments, **named)

        monkeypatch.setattr(owner, name, raising)


@pytest.fixture(scope="module")
def local() -> Iterator[hetsched.Local]:
    with hetsched.Local(parse(MACHINE, "test"), learn=False) as local:
        yield local


def submit(local: hetsched.Local, folder: Path, name: str = "y.npy", batch: str = "8x8x8") -> Job:
    """A job that passes every stage."""
    output = FileOut(str(folder / name))
    params = {"batch": batch}
    return local.run(JobSpec(workload="fft", params=params, outputs={"": output}, verify=True))


def used_bytes(local: hetsched.Local) -> int:
    gc.collect()
    return local._call(lambda: local._arena.used)


@pytest.mark.parametrize("stage", STAGES)
def test_an_exception_in_a_stage_fails_its_job_and_the_next_one_is_done(
    stage: str,
    local: hetsched.Local,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    submit(local, tmp_path, "before.npy").result(60)
    flush(local)
    local._call(local._engine.planning.plans.clear)  # no plan made ahead
    before = used_bytes(local)
    owner, name = STAGES[stage]
    raising = Raising(monkeypatch, owner, name)

    job, after = submit(local, tmp_path), submit(local, tmp_path, "after.npy")

    with pytest.raises(InternalError, match=f"^ZeroDivisionError: {name} divides by zero$"):
        job.result(60)
    after.result(60)
    assert raising.calls > 1
    assert job.report is not None
    assert job.report.error == ErrorRecord(70, f"ZeroDivisionError: {name} divides by zero")
    assert f'Traceback (most recent call last):\n  File "{__file__[:1]}' in caplog.text
    assert f"ZeroDivisionError: {name} divides by zero" in caplog.text
    assert not (tmp_path / "y.npy").exists()
    assert used_bytes(local) == before


def flush(local: hetsched.Local) -> None:
    """Wait until the planner's thread has done everything that was submitted or deferred."""
    done: Future[None] = Future()
    thread = local._engine.planner_thread
    local._call(lambda: thread.submit(lambda: None, lambda *answer: done.set_result(None)))
    done.result(60)


def test_jobs_that_end_at_once_are_followed_by_the_next_without_recursion(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(arrays: JobArrays) -> None:
        raise TryAgain("others hold the arena")

    with hetsched.Local(parse(MACHINE, "test"), learn=False) as local:
        first = local.submit("fft", batch="1x8x8", hold=True)
        after = f"{first.id}:any"
        jobs = [first, *(local.submit("fft", batch="1x8x8", after=after) for _ in range(QUEUE))]
        monkeypatch.setattr(JobArrays, "place", refuse)
        local.release(first.id)
        errors = [job.exception(60) for job in jobs]

    assert {getattr(error, "code", None) for error in errors} == {TryAgain.code}
