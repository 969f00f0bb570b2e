"""Checkpoints from end to end: written while a job runs, and continued from by another one."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cores import COUNT
from diffusing_workload import DiffusionParams, diffused

import hetsched
from hetsched.config import parse
from hetsched.errors import (
    CantCreate,
    DataError,
    HetschedError,
    InputMissing,
    UsageError,
)
from hetsched.job import Failed
from hetsched.store.checkpoints.checkpoint_file import read_record

DIFFUSION = "diffusing_workload:Diffusion"
TESTS = Path(__file__).parent.parent
ROWS, COLUMNS, ITERATIONS = 60, 4, 1000
EVERY = 0.01
MACHINE = f"""
[[device]]
kind = "cpu"
count = {COUNT}
hardware_threads = true
"""


@pytest.fixture(scope="module")
def local() -> Iterator[hetsched.Local]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(TESTS))
        with hetsched.Local(parse(MACHINE, "test"), learn=False) as local:
            yield local


def made() -> np.ndarray:
    return np.random.default_rng(3).standard_normal((ROWS, COLUMNS))


def submit(local: hetsched.Local, **options: Any) -> Any:
    params = {"rows": ROWS, "iterations": ITERATIONS, "border": "reflect"}
    return local.submit(DIFFUSION, made(), **{**params, **options})


def expected() -> np.ndarray:
    params = DiffusionParams(ROWS, COLUMNS, ITERATIONS, border="reflect")
    return diffused(params, made())[0]


@pytest.fixture(scope="module")
def checkpoint(local: hetsched.Local, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("checkpoints") / "job.ckpt"
    job = submit(local, checkpoint=path, every=EVERY, slow_until=str(path))
    np.testing.assert_allclose(job.result(60).y, expected())
    explained = job.explain().iterations
    assert explained is not None
    assert explained.written_checkpoints > 0
    assert "checkpoint" in str(job.explain())
    return path


def test_a_job_continues_from_a_checkpoint(local: hetsched.Local, checkpoint: Path) -> None:
    record = read_record(str(checkpoint))
    assert 0 < record.iteration < ITERATIONS

    job = submit(local, resume=checkpoint)

    np.testing.assert_allclose(job.result(60).y, expected())
    assert job.report.iterations == ITERATIONS
    assert job.report.notes == (
        f"continued after iteration {record.iteration}, from {checkpoint}",
    )
    assert job.explain().iterations.first == record.iteration + 1


def test_a_job_may_continue_with_other_limits(local: hetsched.Local, checkpoint: Path) -> None:
    iteration = read_record(str(checkpoint)).iteration

    job = submit(local, resume=checkpoint, iterations=iteration)

    job.result(60)
    assert job.report.iterations == iteration, "nothing but the end was left to do"


def test_numpy_reads_the_state(checkpoint: Path) -> None:
    with np.load(checkpoint, allow_pickle=False) as saved:
        assert saved["state/u"].shape == (ROWS, COLUMNS)


def refusal(local: hetsched.Local, **options: Any) -> HetschedError:
    with pytest.raises(HetschedError) as caught:
        submit(local, **options).result(60)
    assert "\n" not in str(caught.value)
    return caught.value


def test_another_problem_is_refused(
    local: hetsched.Local, checkpoint: Path, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match="input x has other values"):
        other = {"rows": ROWS, "iterations": ITERATIONS, "border": "reflect"}
        local.submit(DIFFUSION, 2 * made(), resume=checkpoint, **other).result(60)
    error = refusal(local, resume=checkpoint, border="fixed")
    assert isinstance(error, DataError)
    assert "border is 'reflect' there, 'fixed' in the job" in str(error)
    (tmp_path / "half").write_bytes(checkpoint.read_bytes()[:-50])
    assert isinstance(refusal(local, resume=tmp_path / "half"), DataError)
    assert isinstance(refusal(local, resume=tmp_path / "none"), InputMissing)


def test_a_file_that_is_no_checkpoint_is_not_replaced(
    local: hetsched.Local, tmp_path: Path
) -> None:
    mine = tmp_path / "mine.npz"
    mine.write_bytes(b"mine")

    error = refusal(local, checkpoint=mine, every=EVERY)

    assert isinstance(error, CantCreate)
    assert str(error).endswith("not a checkpoint; it is not replaced: give another name")
    assert mine.read_bytes() == b"mine"


class WhenWarned(logging.Handler):
    """Creates a file when the engine warns with `text`."""

    def __init__(self, path: Path, text: str = "no checkpoint after iteration") -> None:
        super().__init__(logging.WARNING)
        self.path = path
        self.text = text

    def emit(self, record: logging.LogRecord) -> None:
        if self.text in record.getMessage():
            self.path.touch()

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        logger = logging.getLogger("hetsched")
        logger.addHandler(self)
        try:
            yield
        finally:
            logger.removeHandler(self)


@pytest.mark.usefixtures("checkpoint")  # so that all processes have started
def test_a_failed_attempt_goes_on_from_its_own_checkpoint(
    local: hetsched.Local, tmp_path: Path
) -> None:
    path, warned = tmp_path / "job.ckpt", WhenWarned(tmp_path / "warned", "retry 1 of 1")
    with warned.listening():
        job = submit(
            local,
            checkpoint=path,
            every=EVERY,
            slow_until=str(warned.path),
            timeout=3.0,
            retries=1,
        )
        np.testing.assert_allclose(job.result(60).y, expected())

    (note,) = [text for text in job.report.notes if text.startswith("continued after ")]
    assert note.endswith(f", from {path}")
    assert job.explain().iterations.first > 1


def test_a_checkpoint_that_cannot_be_written_costs_the_job_nothing(
    local: hetsched.Local, tmp_path: Path
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    warned = WhenWarned(tmp_path / "warned")
    job = submit(
        local, checkpoint=folder / "job.ckpt", every=EVERY, slow_until=str(warned.path), hold=True
    )
    folder.rmdir()
    with warned.listening():
        local.release(job.id)
        np.testing.assert_allclose(job.result(60).y, expected())

    (note,) = [note for note in job.report.notes if note.startswith("no checkpoint after ")]
    assert "there is no folder" in note


def test_a_cancelled_job_can_be_continued(local: hetsched.Local, tmp_path: Path) -> None:
    path, begun = tmp_path / "job.ckpt", threading.Event()
    job = submit(local, checkpoint=path, every="1h", slow_until=str(tmp_path / "never"))
    job.add_progress_callback(lambda progress: begun.set())
    assert begun.wait(60)

    job.cancel()

    with pytest.raises(CancelledError):
        job.result(60)
    state = job.progress()
    assert isinstance(state, Failed)
    assert state.error.message.endswith(f", --resume {path} continues")
    np.testing.assert_allclose(submit(local, resume=path).result(60).y, expected())


def test_two_jobs_have_two_checkpoints(local: hetsched.Local, tmp_path: Path) -> None:
    first = submit(local, checkpoint=tmp_path / "job.ckpt", hold=True)
    with pytest.raises(UsageError, match=f"job {first.id} writes its checkpoints there; give"):
        submit(local, checkpoint=tmp_path / "job.ckpt")
    first.cancel()


def test_a_checkpoint_is_no_output(local: hetsched.Local, tmp_path: Path) -> None:
    path = tmp_path / "y.npy"
    with pytest.raises(UsageError, match="both a checkpoint and an output"):
        submit(local, out={"y": path}, checkpoint=path).result(60)
