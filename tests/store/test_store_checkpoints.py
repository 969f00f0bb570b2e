from __future__ import annotations

import errno
import os
import zipfile
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from diffusing_workload import Diffusion, DiffusionParams
from hypothesis import given
from hypothesis import strategies as st

from hetsched.errors import DataError, HetschedError
from hetsched.iterations.saved_state import SavedState
from hetsched.iterations.serial import run
from hetsched.store.checkpoint import (
    CheckpointRecord,
    Problem,
    data_digest,
    load_checkpoint,
    problem_of,
    save_checkpoint,
)

X = np.random.default_rng(5).standard_normal((24, 4))
WORKLOAD = Diffusion()
PARAMS = DiffusionParams()


@cache
def _saved(params: DiffusionParams, after: int) -> SavedState:
    saved = run(WORKLOAD, params, {"x": X}, (24,), save_after=after).saved
    assert saved is not None
    return saved


@dataclass(frozen=True)
class SavedJob:
    """A job of the toy workload, and where its checkpoint is."""

    path: str
    params: DiffusionParams = PARAMS
    x: np.ndarray | None = None

    @property
    def problem(self) -> Problem:
        x = X if self.x is None else self.x
        specs = [replace(WORKLOAD.arrays(self.params)[0], dtype=x.dtype.name)]
        return problem_of(WORKLOAD, self.params, specs, {"x": data_digest(x)})[0]

    def state(self, after: int = 4) -> SavedState:
        """Return what to save after an iteration; it may be changed."""
        saved = _saved(self.params, after)
        arrays = {name: array.copy() for name, array in saved.arrays.items()}
        return SavedState(after, arrays, {n: value.copy() for n, value in saved.values.items()})

    def save(self, after: int = 4, saved: SavedState | None = None) -> SavedState:
        saved = saved or self.state(after)
        save_checkpoint(self.path, saved, self.problem, residual=0.5, now=1.8e9)
        return saved

    def load(self) -> tuple[CheckpointRecord, SavedState]:
        return load_checkpoint(self.path, WORKLOAD, self.params, self.problem)

    def with_params(self, **changes: object) -> SavedJob:
        return replace(self, params=DiffusionParams(**changes))  # type: ignore[arg-type]


@pytest.fixture
def job(tmp_path: Path) -> SavedJob:
    return SavedJob(str(tmp_path / "job.ckpt"))


def refusal(job: SavedJob) -> str:
    with pytest.raises(HetschedError) as caught:
        job.load()
    assert "\n" not in str(caught.value)
    assert caught.value.code == 65
    return str(caught.value)


def test_what_is_saved_is_loaded(job: SavedJob) -> None:
    saved = job.save()

    record, loaded = job.load()

    assert (record.iteration, record.residual, loaded.iteration) == (4, 0.5, 4)
    assert record.written.isoformat() == "2027-01-15T08:00:00+00:00"
    for mine, theirs in ((saved.arrays, loaded.arrays), (saved.values, loaded.values)):
        assert mine.keys() == theirs.keys()
        for name, array in mine.items():
            np.testing.assert_array_equal(array, theirs[name], strict=True)


def test_a_job_that_ends_before_the_checkpoint_does_not_continue_from_it(job: SavedJob) -> None:
    job.save()

    assert job.with_params(iterations=4).load()[0].iteration == 4
    message = "after iteration 4; this job ends after 3: give it a higher limit"
    assert message in refusal(job.with_params(iterations=3))


@pytest.mark.parametrize("where", ["state", "values"])
def test_nan_is_not_saved(job: SavedJob, where: str) -> None:
    good = job.save()
    bad = job.state(5)
    (bad.arrays["u"] if where == "state" else bad.values["total"])[..., 2] = np.nan

    with pytest.raises(DataError, match=r"iteration 5: .* contains NaN"):
        job.save(saved=bad)
    assert job.load()[0].iteration == good.iteration


def rewritten(job: SavedJob, **members: bytes | None) -> None:
    """Replace members of the file, or remove them; "record" stands for record.json."""
    with zipfile.ZipFile(job.path) as old:
        contents: dict[str, bytes | None] = {name: old.read(name) for name in old.namelist()}
    contents |= {f"{k.replace('__', '/')}.npy": v for k, v in members.items() if k != "record"}
    if "record" in members:
        contents["record.json"] = members["record"]
    with zipfile.ZipFile(job.path, "w") as new:
        for name, content in contents.items():
            if content is not None:
                new.writestr(name, content)


def test_files_of_another_format_are_refused(job: SavedJob) -> None:
    for content, message in (
        (b"", "not a checkpoint, or damaged: File is not a zip file"),
        (b"\x80\x05\x95", "not a checkpoint, or damaged: File is not a zip file"),
        (b"PK\x03\x04 and no more", "damaged"),
    ):
        Path(job.path).write_bytes(content)
        assert message in refusal(job)
    with Path(job.path).open("wb") as file:
        np.savez(file, a=np.zeros(3))
    assert "There is no item named 'record.json'" in refusal(job)


def test_a_record_of_another_version_is_refused(job: SavedJob) -> None:
    job.save()
    with zipfile.ZipFile(job.path) as archive:
        record = archive.read("record.json")

    rewritten(job, record=record.replace(b"checkpoint/1", b"checkpoint/2"))
    assert "version than 'hetsched.checkpoint/1'" in refusal(job)
    rewritten(job, record=record.replace(b'"state_version": 1', b'"state_version": 2'))
    assert "the version of its state is 2 there, 1 in the job" in refusal(job)
    rewritten(job, record=record.replace(b'"workload": "diffusion"', b'"workload": "heat"'))
    assert "the workload is 'heat' there, 'diffusion' in the job" in refusal(job)
    rewritten(job, record=b"{")
    assert "of another version than" in refusal(job)


def test_members_other_than_recorded_are_refused(job: SavedJob) -> None:
    job.save()
    rewritten(job, state__u=None)
    assert "damaged: There is no item named 'state/u.npy'" in refusal(job)
    for array in (np.zeros((24, 5)), np.zeros((24, 4), "float32"), np.full((24, 4), "x", "O")):
        np.save(Path(job.path).with_suffix(".npy"), array)
        rewritten(job, state__u=Path(job.path).with_suffix(".npy").read_bytes())
        refusal(job)


@given(position=st.floats(0, 1, exclude_max=True), flip=st.integers(1, 255), cut=st.booleans())
def test_damage_is_found_or_harmless(
    tmp_path_factory: pytest.TempPathFactory, position: float, flip: int, cut: bool
) -> None:
    job = SavedJob(str(tmp_path_factory.getbasetemp() / "damaged.ckpt"))
    saved = job.save()
    raw = bytearray(Path(job.path).read_bytes())
    index = int(position * len(raw))
    raw[index] ^= flip
    Path(job.path).write_bytes(raw[:index] if cut else raw)

    try:
        _, loaded = job.load()
    except DataError as error:
        assert "\n" not in str(error)
    else:
        assert not cut
        np.testing.assert_array_equal(loaded.arrays["u"], saved.arrays["u"])
        assert loaded.values["total"].tobytes() == saved.values["total"].tobytes()


CALLS = ("open", "posix_fallocate", "fchmod", "fsync", "replace")
"""System calls of a save, by their functions in `os`."""


@pytest.fixture
def saved(tmp_path: Path) -> SavedJob:
    saved = SavedJob(str(tmp_path / "job.ckpt"))
    saved.save(2)
    return saved


def check_previous(saved: SavedJob) -> None:
    assert saved.load()[0].iteration == 2
    assert os.listdir(Path(saved.path).parent) == ["job.ckpt"]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("call", CALLS)
def test_an_error_leaves_the_previous_one(
    saved: SavedJob, call: str, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object, **options: object) -> None:
        raise OSError(code, os.strerror(code))

    state = saved.state(5)
    with monkeypatch.context() as context:
        context.setattr(os, call, fail)
        with pytest.raises(HetschedError) as caught:
            saved.save(saved=state)

    assert caught.value.code in (73, 74)
    check_previous(saved)


def test_a_process_that_ends_leaves_a_whole_one(tmp_path: Path) -> None:
    """End a child at each of its system calls; then save once more."""
    for call in CALLS:
        saved = SavedJob(str(tmp_path / call / "job.ckpt"))
        (tmp_path / call).mkdir()
        saved.save(2)
        state = saved.state(5)
        child = os.fork()
        if child == 0:
            setattr(os, call, lambda *arguments, **options: os._exit(9))
            saved.save(saved=state)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9

        assert saved.load()[0].iteration == 2
        saved.save(7)
        assert saved.load()[0].iteration == 7
        assert os.listdir(tmp_path / call) == ["job.ckpt"]
