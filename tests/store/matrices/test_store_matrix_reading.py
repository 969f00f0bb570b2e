"""Matrix files are read in a process of their own, which is limited."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io
import scipy.sparse
from matrix_samples import COORDINATES, tridiagonal

from hetsched.errors import DataError
from hetsched.store.matrix_file import read_matrix, read_matrix_header


def read(path: Path, max_bytes: int = 1 << 20) -> dict[str, np.ndarray]:
    fd = os.open(path, os.O_RDONLY)
    try:
        header = read_matrix_header(str(path), fd)
        if header.entries is None:
            return read_matrix(str(path), fd, header, header.dense_shape(str(path)), max_bytes)
        return read_matrix(str(path), fd, header, header.sparse_shapes(str(path)), max_bytes)
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
