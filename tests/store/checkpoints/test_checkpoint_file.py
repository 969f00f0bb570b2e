"""Checkpoints: what is saved is loaded; anything else is refused in one line."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched.errors import DataError, HetschedError
from tests.store.checkpoints.saved_job import SavedJob


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
def test_nan_is_neither_saved_nor_loaded(
    job: SavedJob, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = job.save()
    bad = job.state(5)
    (bad.arrays["u"] if where == "state" else bad.values["total"])[..., 2] = np.nan

    with pytest.raises(DataError, match=r"iteration 5: .* contains NaN"):
        job.save(saved=bad)
    assert job.load()[0].iteration == good.iteration

    monkeypatch.setattr("hetsched.store.checkpoint._check_no_nan", lambda *a: 0)
    job.save(saved=bad)
    monkeypatch.undo()
    assert "contains NaN" in refusal(job)


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
