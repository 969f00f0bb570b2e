"""Where checkpoints may be written, as it is checked before a job runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from checkpoints.saved_job import SavedJob
from hetsched.errors import CantCreate
from hetsched.store.checkpoint import check_folder, check_target


@pytest.fixture
def job(tmp_path: Path) -> SavedJob:
    return SavedJob(str(tmp_path / "job.ckpt"))


def test_only_checkpoints_of_the_same_problem_are_replaced(job: SavedJob) -> None:
    check_target(job.path, job.problem)
    job.save()
    check_target(job.path, job.problem)

    with pytest.raises(CantCreate, match=r"another problem: .*; it is not replaced"):
        check_target(job.path, job.with_params(rows=30).problem)
    Path(job.path).write_bytes(b"mine")
    with pytest.raises(CantCreate, match="not a checkpoint; it is not replaced"):
        check_target(job.path, job.problem)
    with pytest.raises(CantCreate, match="no folder"):
        check_target("/nowhere/job.ckpt", job.problem)


def test_any_checkpoint_may_be_replaced_while_the_problem_is_unknown(job: SavedJob) -> None:
    job.save()

    check_target(job.path, None)

    Path(job.path).write_bytes(b"mine")
    with pytest.raises(CantCreate, match="not a checkpoint; it is not replaced"):
        check_target(job.path, None)


def test_a_folder_is_tried_and_left_as_it_was(job: SavedJob) -> None:
    check_folder(job.path, 1000)
    assert list(Path(job.path).parent.iterdir()) == []


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        (f"/tmp/{'n' * 300}", "File name too long"),
        ("/nowhere/job.ckpt", "there is no folder /nowhere; create it first"),
        ("/proc/job.ckpt", "can't be created in /proc"),  # which its mode bits let root write to
    ],
)
def test_a_folder_that_cannot_be_written_is_refused(path: str, reason: str) -> None:
    with pytest.raises(CantCreate, match=reason):
        check_folder(path, 1000)


def test_a_folder_without_room_is_refused(job: SavedJob) -> None:
    with pytest.raises(CantCreate, match=r"no room for .*; choose another folder"):
        check_folder(job.path, 1 << 62)
