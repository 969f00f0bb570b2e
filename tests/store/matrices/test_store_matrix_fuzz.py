"""Whatever is in a matrix file, reading its header ends in a header or a DataError."""

from __future__ import annotations

import io
import os
from pathlib import Path

import numpy as np
import scipy.io
import scipy.sparse
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from matrix_samples import COORDINATES, tridiagonal

from hetsched.errors import DataError
from hetsched.store.matrix_file import MatrixHeader, read_matrix_header

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
