"""Jobs that name the same checkpoint don't replace each other's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from hetsched.device import DeviceInfo
from hetsched.engine.admission.bind import MachineLimits
from hetsched.engine.admission.check import CheckedJob, check, refusal
from hetsched.engine.admission.files import PendingOutputs
from hetsched.engine.threads import Step
from hetsched.errors import TryAgain, UsageError
from hetsched.job import Dependency, FileRef, JobSpec
from hetsched.transport.arena import Arena

MACHINE = MachineLimits([DeviceInfo(name="cpu0", kind="cpu", identity="c")], {}, 1 << 30)


@pytest.fixture
def arena() -> Iterator[Arena]:
    arena = Arena(16 << 20)
    yield arena
    arena.close()


@pytest.fixture
def pending(tmp_path: Path) -> PendingOutputs:
    """With job 3, which writes job.ckpt."""
    np.save(tmp_path / "x.npy", np.ones((24, 4)))
    pending = PendingOutputs()
    checked = checked_job(tmp_path, pending)
    pending.add(3, checked.claims, checked.checkpoint)
    return pending


def checked_job(
    folder: Path, pending: PendingOutputs, name: str = "job.ckpt", *after: int
) -> CheckedJob:
    spec = JobSpec(
        workload="diffusing_workload:Diffusion",
        params={},
        inputs={"x": FileRef(str(folder / "x.npy"))},
        checkpoint=str(folder / name),
        after=tuple(map(Dependency, after)),
    )
    return check(spec, MACHINE, pending, Step())


def test_a_checkpoint_of_an_unfinished_job_is_refused(
    tmp_path: Path, pending: PendingOutputs, arena: Arena
) -> None:
    (tmp_path / "link").symlink_to(".")
    for name in ("job.ckpt", "link/job.ckpt"):
        refused = refusal(checked_job(tmp_path, pending, name), arena, pending, is_new=True)
        assert refused is not None
        assert refused.code == UsageError.code
        assert refused.message == (
            f"{tmp_path / name}: job 3 writes its checkpoints there; give another name, or run"
            " this job after that one"
        )


def test_another_one_is_not_and_neither_is_that_of_an_earlier_or_ended_job(
    tmp_path: Path, pending: PendingOutputs, arena: Arena
) -> None:
    other = checked_job(tmp_path, pending, "other.ckpt")
    later = checked_job(tmp_path, pending, "job.ckpt", 3)
    same = checked_job(tmp_path, pending)

    assert refusal(other, arena, pending, is_new=True) is None
    assert refusal(later, arena, pending, is_new=True) is None
    assert refusal(same, arena, pending, is_new=False) is None, "an earlier daemon accepted it"
    pending.remove(3)
    assert refusal(same, arena, pending, is_new=True) is None


def test_a_job_that_needs_more_segments_than_there_may_be_is_refused(
    tmp_path: Path, pending: PendingOutputs, arena: Arena
) -> None:
    arena.max_segments = lambda: 1

    refused = refusal(checked_job(tmp_path, pending, "o"), arena, pending, is_new=True)

    assert refused is not None and refused.code == TryAgain.code
