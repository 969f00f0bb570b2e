from __future__ import annotations

import io
import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io
import scipy.sparse
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from hetsched.errors import DataError
from hetsched.store.matrix_file import MatrixHeader, read_matrix, read_matrix_header

COORDINATES = b"%%MatrixMarket matrix coordinate real general\n"


def tridiagonal(n: int = 6) -> Any:
    return scipy.sparse.diags_array(
        [-1.0, 2.5, -1.0], offsets=[-1, 0, 1], shape=(n, n), dtype="float64"
    )


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


FORMAT, SHAPE = npy(np.array(b"csr")), npy(np.array([3, 3]))
BROKEN = [
    (b"1 2 3\n", "is neither a Matrix Market file .* nor an .npz file"),
    (b"\x93NUMPY\x01\x00", "holds a dense array; a sparse matrix is needed, as scipy"),
    (b"\x1f\x8b\x08", "is compressed with gzip; decompress it first"),
    (b"%%MatrixMarket tensor coordinate real general\n", "broken Matrix .*tensor"),
    (b"%%MatrixMarket matrix coordinate quaternion general\n", "broken Matrix .*quaternion"),
    (COORDINATES + b"3 3\n", "broken Matrix Market header"),
    (COORDINATES + b"3 -3 2\n", "can't be negative"),
    (COORDINATES + b"three\n", "broken Matrix Market header"),
    (COORDINATES, "broken Matrix Market header"),
    ({"a": npy(np.ones(2)), "b": npy(np.ones(2))}, "holds the arrays a.npy, b.npy: neither"),
    ({}, r"holds the arrays \(none\): neither one"),
    ({"a": npy(np.array([{}], object))}, "holds pickled Python objects, which are never"),
    ({"a": npy(np.array(["x"]))}, "a.npy: holds str32; only numbers are supported"),
    ({"a": b"nothing"}, "a.npy: broken or truncated .npy header"),
    ({"format": FORMAT, "shape": SHAPE}, "not an .npz file, or damaged: .* 'data.npy'"),
    ({"format": FORMAT, "data": npy(np.ones(2)), "shape": b"x" * 5000}, "shape.npy: broken"),
]


@pytest.mark.parametrize(("content", "message"), BROKEN)
def test_a_broken_file_gives_one_clear_line(
    tmp_path: Path, content: bytes | dict[str, bytes], message: str
) -> None:
    if isinstance(content, bytes):
        (tmp_path / "a").write_bytes(content)
    else:
        archive(tmp_path / "a", **content)

    with pytest.raises(DataError, match=message) as caught:
        header(tmp_path / "a")

    assert str(caught.value).startswith(f"{tmp_path}/a: ")
    assert "\n" not in str(caught.value)


def read(path: Path, max_bytes: int = 1 << 20) -> dict[str, np.ndarray]:
    fd = os.open(path, os.O_RDONLY)
    try:
        header = read_matrix_header(str(path), fd)
        shapes = header.dense_shape if header.entries is None else header.sparse_shapes
        return read_matrix(str(path), fd, shapes(str(path)), max_bytes)
    finally:
        os.close(fd)


def as_dense(arrays: dict[str, np.ndarray]) -> Any:
    parts = (arrays["data"], arrays["indices"], arrays["indptr"])
    return scipy.sparse.csr_array(parts).toarray()


def test_a_symmetric_matrix_market_file_is_expanded(tmp_path: Path) -> None:
    scipy.io.mmwrite(tmp_path / "a.mtx", tridiagonal(), symmetry="symmetric")

    arrays = read(tmp_path / "a.mtx")

    assert np.array_equal(as_dense(arrays), tridiagonal().toarray())
    assert [arrays[part].dtype for part in ("data", "indices", "indptr")] == ["f8", "i4", "i4"]


def test_a_compressed_matrix_of_scipy_becomes_sorted_rows(tmp_path: Path) -> None:
    scipy.sparse.save_npz(tmp_path / "a.npz", tridiagonal().tocsc().astype("float32"))

    arrays = read(tmp_path / "a.npz")

    assert np.array_equal(as_dense(arrays), tridiagonal().toarray())
    assert arrays["data"].dtype == "f4"


def test_a_broken_entry_is_named_by_its_line(tmp_path: Path) -> None:
    (tmp_path / "a.mtx").write_bytes(COORDINATES + b"3 3 3\n1 1 2.0\n2 9 1.0\n3 3 1.0\n")

    message = "a.mtx: broken Matrix Market file: Line 4: Column index out of bounds$"
    with pytest.raises(DataError, match=message):
        read(tmp_path / "a.mtx")


def test_a_file_that_crashes_the_parser_is_a_data_error(tmp_path: Path) -> None:
    (tmp_path / "a.mtx").write_bytes(COORDINATES + b"1 1 1\n1 1 2.5R")

    with pytest.raises(DataError, match=r"a.mtx: broken"):
        read(tmp_path / "a.mtx")


def test_a_matrix_over_the_limit_is_refused_before_it_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.mtx").write_bytes(COORDINATES + b"1000000000 1000000000 1\n1 1 1\n")

    with pytest.raises(DataError, match=r"needs 3.73 GiB of shared memory, the limit here is 1 "):
        read(tmp_path / "a.mtx")


def test_indices_out_of_range_in_an_archive_are_a_data_error(tmp_path: Path) -> None:
    matrix = tridiagonal().tocsr()
    matrix.indices[3] = 77
    scipy.sparse.save_npz(tmp_path / "a.npz", matrix)

    with pytest.raises(DataError, match=r"not a valid sparse matrix: .*indices"):
        read(tmp_path / "a.npz")


RELAXED = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


def sample(kind: str) -> bytes:
    file = io.BytesIO()
    match kind:
        case "npz":
            scipy.sparse.save_npz(file, tridiagonal(), compressed=False)
        case "compressed":
            scipy.sparse.save_npz(file, tridiagonal())
        case "dense":
            np.savez(file, np.arange(7))
        case _:
            scipy.io.mmwrite(file, tridiagonal(), symmetry="symmetric")
    return file.getvalue()


SAMPLES = {kind: sample(kind) for kind in ("npz", "compressed", "dense", "text")}


def check(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    fd = os.open(path, os.O_RDONLY)
    try:
        header = read_matrix_header("m", fd)
    except DataError as error:
        assert str(error).startswith("m: ") and "\n" not in str(error)
    else:
        assert isinstance(header, MatrixHeader)
        assert all(isinstance(extent, int) and extent >= 0 for extent in header.shape)
        np.dtype(header.dtype)
    finally:
        os.close(fd)


@RELAXED
@given(
    kind=st.sampled_from(sorted(SAMPLES)),
    edits=st.lists(st.tuples(st.floats(0, 1), st.integers(0, 255)), min_size=1, max_size=4),
    end=st.floats(0, 2),
)
@example(kind="dense", edits=[(0.9921875, 1)], end=1.0)  # a position before the file's start
def test_changed_bytes_and_cut_files(
    tmp_path: Path, kind: str, edits: list[tuple[float, int]], end: float
) -> None:
    data = bytearray(SAMPLES[kind])
    for place, value in edits:
        data[int(place * (len(data) - 1))] = value

    check(tmp_path / "m", bytes(data[: int(end * len(data)) + 2]))


@RELAXED
@given(text=st.text(st.characters(codec="latin-1"), max_size=60))
def test_any_text_after_the_first_line(tmp_path: Path, text: str) -> None:
    check(tmp_path / "m", COORDINATES + text.encode("latin-1"))
