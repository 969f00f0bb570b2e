"""What a matrix file holds is known from its beginning; broken ones give one clear line."""

from __future__ import annotations

import io
import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matrix_samples import COORDINATES

from hetsched.errors import DataError
from hetsched.store.matrix_file import MatrixHeader, read_matrix_header


def header(path: Path) -> MatrixHeader:
    fd = os.open(path, os.O_RDONLY)
    try:
        return read_matrix_header(str(path), fd)
    finally:
        os.close(fd)


def npy(array: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array, allow_pickle=True)
    return file.getvalue()


def archive(path: Path, **members: bytes) -> None:
    with zipfile.ZipFile(path, "w") as file:
        for name, data in members.items():
            file.writestr(f"{name}.npy", data)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"1 2 3\n", "is neither a Matrix Market file .* nor an .npz file"),
        (b"\x93NUMPY\x01\x00", "holds a dense array; a sparse matrix is needed, as scipy"),
        (b"\x1f\x8b\x08", "is compressed with gzip; decompress it first"),
        (
            b"%%MatrixMarket tensor coordinate real general\n",
            "broken Matrix .*tensor",
        ),
        (
            b"%%MatrixMarket matrix coordinate quaternion general\n",
            "broken Matrix .*quaternion",
        ),
        (COORDINATES + b"3 3\n", "broken Matrix Market header"),
        (COORDINATES + b"3 -3 2\n", "can't be negative"),
        (COORDINATES + b"three\n", "broken Matrix Market header"),
        (COORDINATES, "broken Matrix Market header"),
    ],
)
def test_broken_text_gives_one_clear_line(tmp_path: Path, text: bytes, message: str) -> None:
    (tmp_path / "a.mtx").write_bytes(text)

    with pytest.raises(DataError, match=message) as caught:
        header(tmp_path / "a.mtx")

    assert str(caught.value).startswith(f"{tmp_path}/a.mtx: ")
    assert "\n" not in str(caught.value)


FORMAT, SHAPE = npy(np.array(b"csr")), npy(np.array([3, 3]))


@pytest.mark.parametrize(
    ("members", "message"),
    [
        (
            {"a": npy(np.ones(2)), "b": npy(np.ones(2))},
            "holds the arrays a.npy, b.npy: neither",
        ),
        ({}, r"holds the arrays \(none\): neither one"),
        ({"a": npy(np.array([{}], object))}, "holds pickled Python objects, which are never"),
        ({"a": npy(np.array(["x"]))}, "a.npy: holds str32; only numbers are supported"),
        ({"a": b"nothing"}, "a.npy: broken or truncated .npy header"),
        ({"format": FORMAT, "shape": SHAPE}, "not an .npz file, or damaged: .* 'data.npy'"),
        ({"format": FORMAT, "data": npy(np.ones(2)), "shape": b"x" * 5000}, "shape.npy: broken"),
    ],
)
def test_broken_archives_give_one_clear_line(
    tmp_path: Path, members: dict[str, bytes], message: str
) -> None:
    archive(tmp_path / "a.npz", **members)

    with pytest.raises(DataError, match=message) as caught:
        header(tmp_path / "a.npz")

    assert "\n" not in str(caught.value)
