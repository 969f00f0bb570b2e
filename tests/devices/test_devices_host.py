from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched.device_process import arrays
from hetsched.device_process.arrays import ArenaArray, FileArray
from hetsched.errors import CantCreate, IOFailure
from hetsched.workload import ArraySpec

SPEC = ArraySpec("x", "split", (3, 5), "complex64")
DTYPES = ["<c8", ">c8", "<f4", ">f8", "<i4", ">u2", "|b1"]


@pytest.fixture
def fd(tmp_path: Path) -> Iterator[int]:
    opened = os.open(tmp_path / "array", os.O_RDWR | os.O_CREAT, 0o600)
    yield opened
    os.close(opened)


@pytest.fixture(params=[1 << 20, 64], ids=["roomy", "cramped"])
def staging(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "STAGING_BYTES", request.param)


def values(units: int, dtype: str = "<f4") -> np.ndarray:
    return (np.arange(units * 15).reshape(units, 3, 5) % 251).astype(dtype)


def file_array(fd: int, stored: np.ndarray, order: str = "C", offset: int = 13) -> FileArray:
    os.pwrite(fd, stored.tobytes(order="F" if order == "F" else "C"), offset)
    return FileArray(SPEC, fd, stored.shape, stored.dtype.str, offset, order)


@pytest.mark.usefixtures("staging")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("through", [0, 1 << 20], ids=["rows", "slabs"])
def test_a_file_of_any_kind_is_read_as_wanted(
    fd: int, dtype: str, order: str, through: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrays, "MAX_ROW_GAP", through)
    stored = values(9, dtype)
    array = file_array(fd, stored, order)
    into = np.empty((4, 3, 5), "complex64")

    array.read(2, 4, into)

    np.testing.assert_array_equal(into, stored[2:6])


@given(st.data())
def test_fortran_order_is_right_for_any_shape(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=4)))
    first = data.draw(st.integers(0, shape[0] - 1))
    count = data.draw(st.integers(1, shape[0] - first))
    stored = np.arange(np.prod(shape), dtype=">i4").reshape(shape)
    fd = os.memfd_create("test")
    os.pwrite(fd, stored.tobytes(order="F"), 0)
    into = np.empty((count, *shape[1:]))

    spec = ArraySpec("x", "split", shape[1:], "float64")
    FileArray(spec, fd, shape, ">i4", 0, "F").read(first, count, into)
    os.close(fd)

    np.testing.assert_array_equal(into, stored[first : first + count])


@pytest.mark.usefixtures("staging")
@pytest.mark.parametrize("dtype", ["<c8", ">c16"])
def test_what_is_written_to_a_file_is_there(fd: int, dtype: str) -> None:
    array = FileArray(SPEC, fd, (9, 3, 5), dtype, 13)

    array.write(2, 4, values(4, "complex64"))

    written = np.frombuffer(os.pread(fd, 10_000, 13), dtype)[2 * 15 :].reshape(4, 3, 5)
    np.testing.assert_array_equal(written, values(4))


def test_short_reads_and_writes_are_continued(fd: int, monkeypatch: pytest.MonkeyPatch) -> None:
    preadv, pwrite = os.preadv, os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: pwrite(fd, bytes(data[:7]), at))
    monkeypatch.setattr(os, "preadv", lambda fd, into, at: preadv(fd, [into[0][:5]], at))
    array = FileArray(SPEC, fd, (9, 3, 5), "<c8", 13)
    into = np.empty((4, 3, 5), "complex64")

    array.write(1, 4, values(4, "complex64"))
    array.read(1, 4, into)

    np.testing.assert_array_equal(into, values(4))


@pytest.mark.parametrize("order", ["C", "F"])
def test_a_truncated_file_is_a_read_error(fd: int, order: str) -> None:
    array = file_array(fd, values(9), order)
    os.ftruncate(fd, 13 + values(9).nbytes - 1)

    with pytest.raises(IOFailure, match=r"x: the file ends at byte \d+"):
        array.read(5, 4, np.empty((4, 3, 5), "complex64"))


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.ENOSPC, CantCreate),
        (errno.EDQUOT, CantCreate),
        (errno.EFBIG, CantCreate),
        (errno.EIO, IOFailure),
    ],
)
def test_write_errors_say_whether_there_is_no_room(
    fd: int, monkeypatch: pytest.MonkeyPatch, number: int, kind: type[Exception]
) -> None:
    def fail(*_: Any) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "pwrite", fail)

    with pytest.raises(kind, match=f"byte 133.*{os.strerror(number)}"):
        FileArray(SPEC, fd, (9, 3, 5), "<c8", 13).write(1, 1, values(1, "complex64"))


def test_there_is_a_view_only_where_nothing_is_converted() -> None:
    plain, swapped = values(4, "<c8"), values(4, ">c8")
    odd = np.frombuffer(bytes(4 * 15 * 8 + 1), np.uint8)[1:].view("<c8").reshape(4, 3, 5)

    view = ArenaArray(SPEC, plain).direct(1, 2)
    assert view is not None and np.shares_memory(view, plain)
    for stored in (swapped, odd, np.asfortranarray(plain)):
        assert ArenaArray(SPEC, stored).direct(0, 1) is None
