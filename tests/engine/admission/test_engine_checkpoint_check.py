"""A job that could never write a checkpoint is refused when it is submitted."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io
import scipy.sparse

from hetsched.device import DeviceInfo
from hetsched.engine.admission.bind import MachineLimits
from hetsched.engine.admission.check import PendingOutputs, check
from hetsched.engine.admission.resolved_job import ResolvedJob
from hetsched.engine.threads import Step
from hetsched.errors import CantCreate
from hetsched.job import Dependency, FileRef, JobSpec

MACHINE = MachineLimits([DeviceInfo(name="cpu0", kind="cpu", identity="c")], {}, 1 << 30)


def checked(
    checkpoint: Path | str,
    inputs: Mapping[str, FileRef] | None = None,
    after: Collection[int] = (),
) -> ResolvedJob:
    spec = JobSpec(
        workload="sparse_workload:Relaxation",
        params={"rows": 3, "entries": 7} if inputs is None else {},
        inputs=dict(inputs or {}),
        checkpoint=str(checkpoint),
        after=tuple(Dependency(job) for job in after),
    )
    return check(spec, MACHINE, PendingOutputs(), Step())


@pytest.fixture
def matrix(tmp_path: Path) -> dict[str, FileRef]:
    """A system of equations in files that are read when the job is opened."""
    folder = tmp_path / "inputs"
    folder.mkdir()
    diagonals = scipy.sparse.diags_array([2.0, 0.5], offsets=[0, 1], shape=(3, 3))
    scipy.io.mmwrite(folder / "a.mtx", diagonals.tocsr())
    np.save(folder / "b.npy", np.ones(3))
    return {"A": FileRef(str(folder / "a.mtx")), "b": FileRef(str(folder / "b.npy"))}


def test_a_folder_that_is_missing_is_refused(matrix: dict[str, FileRef]) -> None:
    several: list[dict[str, Any]] = [{}, {"inputs": matrix}, {"after": (1,)}]
    for fields in several:
        with pytest.raises(CantCreate, match=r"^/nowhere/job: there is no folder /nowhere; crea"):
            checked("/nowhere/job", **fields)


def test_another_file_is_not_replaced_by_a_job_that_reads_its_matrix_later(
    tmp_path: Path, matrix: dict[str, FileRef]
) -> None:
    checked(tmp_path / "job", matrix)
    (tmp_path / "job").write_bytes(b"mine")
    with pytest.raises(CantCreate, match="it is not replaced"):
        checked(tmp_path / "job", matrix)
