"""Arrays in files and stores are read and written in whole chunks; results appear whole or not."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from array_files import (
    HOSTILE,
    SOURCES,
    X,
    compressed_tiff,
    hdf5,
    hostile_file,
    npy,
    read,
    zarr,
    zarr_2,
    zarr_file,
)
from libraries import library

import hetsched
from hetsched import CantCreate, DataError, InputMissing

dask_array = library("dask.array")

pytestmark = pytest.mark.usefixtures("engine")


def doubled(block: np.ndarray) -> np.ndarray:
    return 2 * block


def dask(folder: Path) -> Any:
    return dask_array.from_array(X, chunks=(11, 10, 30))


@pytest.mark.parametrize(
    ("source", "suffix"),
    [
        *((source, ".npy") for source in (*SOURCES, dask)),
        *((zarr_file, suffix) for suffix in (".raw", ".zarr", ".h5", ".tif")),
    ],
)
def test_any_store_into_any_file(tmp_path: Path, source: Any, suffix: str) -> None:
    out = tmp_path / f"y{suffix}"
    assert hetsched.map(doubled, source(tmp_path), out=out) == out

    np.testing.assert_array_equal(read(out), 2 * X)
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("axis", [1, -1])
@pytest.mark.parametrize("source", [zarr_file, zarr_2, dask, hdf5, npy, compressed_tiff])
def test_along_other_axes(tmp_path: Path, source: Any, axis: int) -> None:
    np.testing.assert_array_equal(hetsched.map(doubled, source(tmp_path), axis=axis), 2 * X)


@pytest.mark.parametrize("source", [zarr_file, hdf5, dask])
@pytest.mark.parametrize("mode", ["reflect", "wrap", "constant"])
def test_with_overlap(tmp_path: Path, source: Any, mode: str) -> None:
    def sums(block: np.ndarray) -> np.ndarray:
        return np.stack([block[max(0, i - 3) : i + 4].sum(axis=0) for i in range(len(block))])

    stored = source(tmp_path)
    np.testing.assert_allclose(
        hetsched.map(sums, stored, overlap=3, mode=mode),
        hetsched.map(sums, X, overlap=3, mode=mode),
        rtol=1e-4,
        atol=1e-4,
    )


def test_a_reduction_of_a_store(tmp_path: Path) -> None:
    total = hetsched.reduce(lambda block: block.sum(dtype="float64"), np.add, zarr_file(tmp_path))
    np.testing.assert_allclose(total, X.sum(dtype="float64"))


def test_shards_are_written_whole(tmp_path: Path) -> None:
    out = zarr.create_array(
        str(tmp_path / "y.zarr"), shape=X.shape, chunks=(2, 20, 30), shards=(8, 20, 30), dtype="f4"
    )
    assert hetsched.map(doubled, zarr_file(tmp_path), out=out) is out
    np.testing.assert_array_equal(out[:], 2 * X)


def test_several_results_of_arrays_in_different_places(tmp_path: Path) -> None:
    paths = (tmp_path / "sum.npy", tmp_path / "mean.zarr")
    results = hetsched.map(
        lambda x, y: (x + y, y.mean(axis=(1, 2))), zarr_file(tmp_path), X, out=paths
    )
    assert results == paths
    np.testing.assert_array_equal(read(paths[0]), 2 * X)
    np.testing.assert_allclose(read(paths[1]), X.mean(axis=(1, 2)), rtol=1e-5)


def test_small_units_share_the_chunks_of_a_new_store(tmp_path: Path) -> None:
    out = tmp_path / "y.zarr"
    hetsched.map(doubled, np.arange(300_000.0), out=out)
    assert zarr.open_array(str(out)).chunks[0] > 10_000
    np.testing.assert_array_equal(read(out), 2 * np.arange(300_000.0))


def test_a_store_is_made_anew_for_another_function_with_the_same_code(tmp_path: Path) -> None:
    for suffix in (".npy", ".zarr", ".h5", ".tif"):
        for count in (2, 3):
            out = tmp_path / f"{count}{suffix}"
            hetsched.map(lambda x, n=count: np.ones((len(x), n, 4)), X, out=out)
            assert read(out).shape == (50, count, 4)


# ---- what goes wrong


@pytest.mark.parametrize("suffix", [".npy", ".zarr", ".h5", ".tif"])
def test_nothing_is_left_of_a_call_that_fails(tmp_path: Path, suffix: str) -> None:
    def fails(block: np.ndarray) -> np.ndarray:
        if (block == X[-1, 0, 0]).any():
            raise ZeroDivisionError
        return block

    source = npy(tmp_path)
    with pytest.raises(ZeroDivisionError):
        hetsched.map(fails, source, out=tmp_path / f"y{suffix}")
    assert [path.name for path in tmp_path.iterdir()] == ["x.npy"]


@pytest.mark.parametrize(("kind", "what"), HOSTILE, ids=str)
def test_a_hostile_file_is_one_line(tmp_path: Path, kind: str, what: Any) -> None:
    with pytest.raises(DataError) as found:
        hetsched.map(doubled, hostile_file(tmp_path, kind, what))
    assert "\n" not in str(found.value)


def test_what_can_not_be_opened_or_created(tmp_path: Path) -> None:
    hdf5(tmp_path)
    for path, error, message in (
        ("no.npy", InputMissing, "no such file"),
        ("x.h5", DataError, r"holds 2 datasets; give one"),
        ("x.h5:no", DataError, "has no dataset 'no'"),
        (f"{'x' * 300}.npy", InputMissing, "File name too long"),
    ):
        with pytest.raises(error, match=message):
            hetsched.map(doubled, tmp_path / path)
    (tmp_path / "y.npy").touch()
    (tmp_path / "mine.zarr").mkdir()
    for path, error, message in (
        ("y.npy", CantCreate, "exists; remove it"),
        ("mine.zarr", CantCreate, "is a directory"),
        ("y.csv", DataError, "must end with .npy, .zarr"),
        ("no/y.npy", CantCreate, "there is no folder .*no; create it first"),
        (f"{'y' * 300}.npy", CantCreate, "File name too long"),
    ):
        with pytest.raises(error, match=message):
            hetsched.map(doubled, X, out=tmp_path / path)


def test_a_file_that_appears_meanwhile_is_refused_without_flags(tmp_path: Path) -> None:
    def creates(block: np.ndarray) -> np.ndarray:
        (tmp_path / "y.npy").touch()
        return block

    with pytest.raises(CantCreate, match=r"y\.npy: exists; remove it, or choose another name"):
        hetsched.map(creates, X, out=tmp_path / "y.npy")
    assert [path.name for path in tmp_path.iterdir()] == ["y.npy"]


def test_a_full_disk_is_no_crash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.posix_fallocate", full)
    with pytest.raises(CantCreate, match=r"y\.npy: no room for .* \(No space left"):
        hetsched.map(doubled, X, out=tmp_path / "y.npy")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("suffix", [".npy", ".raw", ".zarr", ".h5", ".tif"])
def test_room_is_checked_before_any_is_taken(tmp_path: Path, suffix: str) -> None:
    disk = os.statvfs(tmp_path)
    rows = disk.f_bfree * disk.f_frsize // 2**20 + 2**10
    huge = np.broadcast_to(np.float32(1), (rows, 2**18))
    with pytest.raises(CantCreate, match=rf"y\{suffix}: no room for"):
        hetsched.map(doubled, huge, out=tmp_path / f"y{suffix}")
    assert not list(tmp_path.iterdir())
