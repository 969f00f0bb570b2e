"""From which checkpoints the jobs of an earlier daemon continue."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from hetsched.daemon.jobs import open_checkpoints
from hetsched.daemon.jobs.open_checkpoints import OpenCheckpoint, find_checkpoints
from hetsched.job import JobSpec
from hetsched.store.checkpoints.record import CheckpointRecord
from hetsched.store.journal.records import JournaledJob
from tests.store.checkpoints.saved_job import SavedJob

SECONDS = 60.0


@pytest.fixture
def saved(tmp_path: Path) -> SavedJob:
    saved = SavedJob(str(tmp_path / "job.ckpt"))
    saved.save(4)
    os.utime(saved.path, (100.0, 100.0))
    return saved


def found(path: str, submitted_at: float, started_at: float | None) -> OpenCheckpoint | None:
    spec = JobSpec(workload="diffusion", params={}, checkpoint=path)
    job = JournaledJob(
        number=3, spec=spec, submitted_at=submitted_at, durable=True, started_at=started_at
    )
    return find_checkpoints([job], SECONDS).get(3)


def test_one_of_the_last_attempt_is_progress(saved: SavedJob) -> None:
    assert found(saved.path, 80.0, 90.0) == OpenCheckpoint(saved.path, 4, is_progress=True)


def test_one_of_an_earlier_attempt_is_none(saved: SavedJob) -> None:
    assert found(saved.path, 80.0, 110.0) == OpenCheckpoint(saved.path, 4, is_progress=False)


def test_one_from_before_the_submission_is_ignored(saved: SavedJob) -> None:
    assert found(saved.path, 101.0, 110.0) is None


def test_one_of_another_user_is_ignored(
    saved: SavedJob, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    owner = os.stat(saved.path).st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)

    assert found(saved.path, 80.0, 90.0) is None
    assert caplog.messages == [f"job 3 starts over: {saved.path} belongs to uid {owner}"]


def test_a_damaged_or_missing_one_is_ignored(
    saved: SavedJob, caplog: pytest.LogCaptureFixture
) -> None:
    raw = bytearray(Path(saved.path).read_bytes())
    raw[raw.index(b"\x93NUMPY") + 200] ^= 1  # in the data of the first array
    Path(saved.path).write_bytes(raw)
    os.utime(saved.path, (100.0, 100.0))

    assert found(saved.path, 80.0, 90.0) is None
    assert "job 3 starts over" in caplog.text
    assert found(saved.path + "x", 80.0, 90.0) is None


def test_jobs_without_checkpoints_have_none() -> None:
    assert found("", 80.0, 90.0) is None


def test_one_that_is_too_large_to_be_read_in_time_counts(
    saved: SavedJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_looked_at, may_end = threading.Event(), threading.Event()

    def read_for_long(path: str) -> CheckpointRecord:
        is_looked_at.set()
        may_end.wait(SECONDS)
        return open_checkpoints.read_record(path)

    def joined(thread: threading.Thread, seconds: float) -> None:
        assert is_looked_at.wait(SECONDS)

    monkeypatch.setattr(open_checkpoints, "verify_checkpoint", read_for_long)
    monkeypatch.setattr(threading.Thread, "join", joined)
    try:
        assert found(saved.path, 80.0, 90.0) == OpenCheckpoint(saved.path, 4, is_progress=True)
    finally:
        may_end.set()
