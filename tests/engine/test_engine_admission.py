"""What is checked of a job before it runs: devices, inputs, outputs."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io
import scipy.sparse
from msgspec.structs import replace

from hetsched.device import DeviceInfo
from hetsched.engine.admission.check import (
    LOADED_KEY,
    MachineLimits,
    PendingOutputs,
    check,
    open_job,
    resolve,
    select_devices,
)
from hetsched.engine.admission.resolved_job import ResolvedJob
from hetsched.engine.threads import Step
from hetsched.errors import CantCreate, DataError, UsageError
from hetsched.job import ArenaOut, ArenaRef, Dependency, FileOut, FileRef, InputRef, JobSpec

MACHINE = MachineLimits([DeviceInfo(name="cpu0", kind="cpu", identity="c")], {}, 1 << 30)
PARTS: dict[str, InputRef] = {
    "A.data": ArenaRef(1, (7,), "float64"),
    "A.indices": ArenaRef(2, (7,), "int32"),
    "A.indptr": ArenaRef(3, (4,), "int32"),
}


def spec(inputs: dict[str, InputRef], workload: str = "pcg", **params: str) -> JobSpec:
    return JobSpec(workload=workload, params=params, inputs=inputs)


def test_an_output_file_without_a_name_is_the_only_one_that_is_needed() -> None:
    file = FileOut("/tmp/final.npy", force=False)
    heat = JobSpec(workload="heat", params={"grid": "4x4"}, outputs={"": file})

    job = resolve(heat, MACHINE)

    assert (job.targets, job.into) == ({"final": file}, {"steps": None})
    with pytest.raises(UsageError, match="heat has the outputs final, steps: name them"):
        resolve(replace(heat, outputs={"": ArenaOut()}), MACHINE)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (
            {"A.data": PARTS["A.data"], "A": FileRef("/tmp/none.mtx")},
            r"A\.data is part of A: give",
        ),
        ({"A": ArenaRef(1, (3, 3), "float64")}, "input A is a sparse matrix, not one array: give"),
        ({name: PARTS[name] for name in ("A.data", "A.indices")}, r"lacks A\.indptr; give all"),
        ({"B": ArenaRef(1, (3,), "float64")}, "pcg has no input 'B'; it has A, b, x0$"),
    ],
)
def test_inputs_that_make_no_matrix_are_refused(inputs: dict[str, InputRef], message: str) -> None:
    with pytest.raises((UsageError, DataError), match=message):
        resolve(spec(inputs), MACHINE)


def test_the_files_of_a_matrix_and_a_vector_are_read_when_the_job_is_opened(
    tmp_path: Path,
) -> None:
    matrix = scipy.sparse.diags_array([2.0, 0.5], offsets=[0, 1], shape=(3, 3)).tocsr()
    scipy.io.mmwrite(tmp_path / "a.mtx", matrix + matrix.T, symmetry="symmetric")
    np.save(tmp_path / "b.npy", np.ones(3))
    files: dict[str, InputRef] = {
        "A": FileRef(str(tmp_path / "a.mtx")),
        "b": FileRef(str(tmp_path / "b.npy")),
    }

    checked = check(spec(files), MACHINE, PendingOutputs(), Step())
    job = open_job(spec(files), checked, MACHINE, Step())

    assert (checked.load, checked.params.nonzeros) == (3, 7)
    assert checked.loaded == {}
    assert job.inputs["A.indptr"].key == LOADED_KEY
    parts = tuple(job.loaded[f"A.{part}"] for part in ("data", "indices", "indptr"))
    assert (scipy.sparse.csr_array(parts) != matrix + matrix.T).nnz == 0
    job.close()


def checked(
    checkpoint: Path | str,
    inputs: Mapping[str, FileRef] | None = None,
    after: Collection[int] = (),
) -> ResolvedJob:
    spec = JobSpec(
        workload="pcg",
        params={"grid": "3"} if inputs is None else {},
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


KNOWN = (
    DeviceInfo(name="cpu0", kind="cpu", identity="x"),
    DeviceInfo(name="cpu1", kind="cpu", identity="x"),
    DeviceInfo(name="team0", kind="cpu", identity="x x2", members=("cpu0", "cpu1")),
    DeviceInfo(name="emu0", kind="emulated", identity="e"),
)


@pytest.mark.parametrize(
    ("requested", "chosen"),
    [
        ((), ("cpu0", "cpu1", "team0", "emu0")),
        (("cpu",), ("cpu0", "cpu1", "team0")),
        (("team",), ("team0",)),
        (("team0", "emu"), ("team0", "emu0")),
        (("cpu1", "cpu0"), ("cpu0", "cpu1")),
    ],
)
def test_cpu_is_all_cores_one_by_one_or_as_a_team(
    requested: tuple[str, ...], chosen: tuple[str, ...]
) -> None:
    assert select_devices(requested, KNOWN, {}) == chosen


def test_a_group_without_devices_here_is_not_suggested_for_itself() -> None:
    with pytest.raises(UsageError) as caught:
        select_devices(["emu"], KNOWN[:2], {})

    assert str(caught.value) == "no device 'emu'; devices here: cpu0, cpu1"
