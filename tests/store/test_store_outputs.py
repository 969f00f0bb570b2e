"""Outputs that appear whole or not at all."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import numpy as np
import pytest

from hetsched.errors import CantCreate, DataError, HetschedError
from hetsched.store.output_files import create_output, save_array


def create(
    path: Path, shape: tuple[int, ...] = (2, 3), **arguments: object
) -> CantCreate | DataError:
    with pytest.raises((CantCreate, DataError)) as caught:
        create_output(str(path), shape, "complex64", **arguments)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)
    return caught.value


def test_an_output_is_not_seen_until_it_is_published(tmp_path: Path) -> None:
    output = create_output(str(tmp_path / "y.npy"), (2, 3), "complex64")
    os.pwrite(output.fd, np.arange(6, dtype="complex64").tobytes(), output.offset)
    before = os.listdir(tmp_path)

    output.publish()

    assert [name for name in before if not name.startswith(".")] == []
    assert os.listdir(tmp_path) == ["y.npy"]
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), np.arange(6).reshape(2, 3))


def test_the_umask_applies(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        create_output(str(tmp_path / "y.npy"), (2, 3), "complex64").publish()
    finally:
        os.umask(before)

    assert (tmp_path / "y.npy").stat().st_mode & 0o777 == 0o640


def test_a_symbolic_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "real.npy").write_text("old")
    (tmp_path / "link.npy").symlink_to("real.npy")

    create_output(str(tmp_path / "link.npy"), (2, 3), "complex64", True).publish()

    assert (tmp_path / "link.npy").is_symlink()
    assert np.load(tmp_path / "real.npy").shape == (2, 3)


@pytest.mark.parametrize("force", [False, True])
def test_the_input_is_never_the_output(tmp_path: Path, npy: str, force: bool) -> None:
    os.link(npy, tmp_path / "same.npy")
    status = os.stat(npy)
    identity = (status.st_dev, status.st_ino)

    error = create(tmp_path / "same.npy", force=force, inputs=[identity])

    assert error.code == DataError.code
    assert np.load(npy).shape == (2, 3)


def test_impossible_paths_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    os.mkfifo(tmp_path / "fifo")
    places = [tmp_path, tmp_path / "fifo", tmp_path / "none/y", tmp_path / "file/y"]

    codes = [create(place, force=True).code for place in [*places, Path("/dev/null")]]

    assert codes == [CantCreate.code] * 5


@pytest.mark.parametrize(("code", "expected"), [(errno.EDQUOT, 73), (errno.EIO, 74)])
def test_a_quota_that_the_disk_finds_exceeded_at_the_sync_is_no_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, expected: int
) -> None:
    def fail(fd: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(HetschedError) as caught:
        save_array(str(tmp_path / "y.npy"), np.ones(3))

    assert caught.value.code == expected
    assert os.listdir(tmp_path) == []


def test_save_writes_any_layout(tmp_path: Path) -> None:
    array = np.arange(24, dtype=">f8").reshape(2, 3, 4).transpose(2, 0, 1)[::2]

    save_array(str(tmp_path / "y.npy"), array)

    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), array)
