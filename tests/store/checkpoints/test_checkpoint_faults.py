"""Whatever fails or ends while a checkpoint is written, the previous one stays."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from hetsched.errors import HetschedError
from tests.store.checkpoints.saved_job import SavedJob

CALLS = ("open", "posix_fallocate", "fchmod", "fsync", "replace")
"""System calls of a save, by their functions in `os`."""


@pytest.fixture
def job(tmp_path: Path) -> SavedJob:
    job = SavedJob(str(tmp_path / "job.ckpt"))
    job.save(2)
    return job


def error_of_save(job: SavedJob) -> HetschedError:
    state = job.state(5)
    with pytest.raises(HetschedError) as caught:
        job.save(saved=state)
    assert "\n" not in str(caught.value)
    return caught.value


@contextlib.contextmanager
def largest_file(nbytes: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (nbytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def check_previous(job: SavedJob) -> None:
    assert job.load()[0].iteration == 2
    assert os.listdir(Path(job.path).parent) == ["job.ckpt"]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EROFS, errno.EDQUOT])
@pytest.mark.parametrize("call", CALLS)
def test_an_error_leaves_the_previous_one(
    job: SavedJob, call: str, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object, **options: object) -> None:
        raise OSError(code, os.strerror(code))

    state = job.state(5)
    with monkeypatch.context() as context:
        context.setattr(os, call, fail)
        with pytest.raises(HetschedError) as caught:
            job.save(saved=state)

    assert caught.value.code in (73, 74)
    check_previous(job)


def test_a_disk_that_is_full_halfway_leaves_the_previous_one(
    job: SavedJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Where space can't be reserved, a write fails instead.
    monkeypatch.setattr(os, "posix_fallocate", lambda *arguments: None)
    with largest_file(1500):
        error = error_of_save(job)

    assert error.code == 73
    check_previous(job)


def test_a_process_that_ends_leaves_a_whole_one(tmp_path: Path) -> None:
    """End a child at each of its system calls; then save once more."""
    for call in CALLS:
        job = SavedJob(str(tmp_path / call / "job.ckpt"))
        (tmp_path / call).mkdir()
        job.save(2)
        state = job.state(5)
        child = os.fork()
        if child == 0:
            setattr(os, call, lambda *arguments, **options: os._exit(9))
            job.save(saved=state)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9

        assert job.load()[0].iteration == 2
        job.save(7)
        assert job.load()[0].iteration == 7
        assert os.listdir(tmp_path / call) == ["job.ckpt"]
