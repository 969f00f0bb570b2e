from __future__ import annotations

import contextlib
import os
import re
import socket
import tempfile
import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched.errors import DataError, HetschedError, InputMissing
from hetsched.store.formats import ArrayLayout, open_array, open_regular, read_header, read_whole


def raw(path: Path, header: str, data: bytes = b"", version: bytes = b"\x01\x00") -> str:
    """A .npy file with just that header."""
    text = header.encode()
    width = 2 if version[0] == 1 else 4
    path.write_bytes(b"\x93NUMPY" + version + len(text).to_bytes(width, "little") + text + data)
    return str(path)


def says(descr: str = "'<c8'", order: str = "False", shape: str = "(2, 3)") -> str:
    return f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}\n"


def header_of(path: str) -> ArrayLayout:
    fd = open_regular(path, "a .npy file")
    try:
        return read_header(path, fd)
    finally:
        os.close(fd)


def refused(path: str) -> HetschedError:
    with pytest.raises(HetschedError) as caught:
        header_of(path)
    assert "\n" not in str(caught.value)
    assert path in str(caught.value)
    return caught.value


@pytest.mark.parametrize(
    ("header", "word"),
    [
        (says(shape="(1000000000000, 512, 512)"), "truncated"),
        (says(shape="(-1, 3)"), "impossible shape"),
        (says(shape=f"({'9' * 5000},)"), "broken"),
        (says(shape="(1+1, 3)"), "broken"),
        (says(shape="(2.0, 3)"), "broken"),
        (says(shape="((2,), 3)"), "broken"),
        (says(shape="(0, 3)"), "no elements"),
        (says(order="0"), "broken"),
        (says(descr="'|O'"), "pickled"),
        (says(descr="'O8'"), "pickled|broken"),
        (says(descr="[('a', '<f4'), ('b', '<i4')]"), "records"),
        (says(descr="'<U8'"), "only numbers"),
        (says(descr="'<M8'"), "only numbers"),
        (says(descr="'<f77'"), "broken"),
        (says(descr="'float32; x'"), "broken"),
        ("__import__('os').system('true')", "broken"),
        ("{'descr': __import__('os'), 'fortran_order': False, 'shape': (1,)}", "broken"),
        ("{'descr': '<f4', 'shape': (1,)}", "broken"),
        ("{" * 5000, "broken"),
        ("{}", "broken"),
        ("", "broken"),
        ("\x00" * 40, "broken"),
    ],
)
def test_a_wrong_header_is_refused(tmp_path: Path, header: str, word: str) -> None:
    error = refused(raw(tmp_path / "x.npy", header, bytes(48)))

    assert isinstance(error, DataError)
    assert re.search(word, str(error))


def test_an_endless_header_is_not_read(tmp_path: Path) -> None:
    path = raw(tmp_path / "x.npy", " " * 20_000, version=b"\x02\x00")

    assert "20000" in str(refused(path))


def test_a_truncated_file_is_refused_wherever_it_ends(npy: str) -> None:
    content = Path(npy).read_bytes()
    for length in range(len(content)):
        Path(npy).write_bytes(content[:length])
        assert isinstance(refused(npy), DataError)


@given(st.binary(max_size=200))
def test_random_bytes_are_an_error(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.npy"
        path.write_bytes(b"\x93NUMPY\x01\x00" + data)
        assert refused(str(path)).code == DataError.code


def test_a_directory_a_fifo_a_socket_and_a_device_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        paths = [str(tmp_path), str(tmp_path / "fifo"), str(tmp_path / "socket"), "/dev/null"]
        assert [refused(path).code for path in paths] == [DataError.code] * 4


def test_a_nonexistent_file_is_missing(tmp_path: Path) -> None:
    (tmp_path / "dangling").symlink_to("nowhere")
    (tmp_path / "round").symlink_to("round")
    (tmp_path / "file").touch()
    names = ["none", "none/x", "dangling", "round", "file/x", "n" * 300]

    errors = [refused(str(tmp_path / name)) for name in names]

    assert [type(error) for error in errors] == [InputMissing] * 6
    assert "nowhere" in str(errors[2])


MOST = 1000


def test_unreadable_files_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(b"x" * (MOST + 1))

    with pytest.raises(InputMissing, match="no such file"):
        read_whole(str(tmp_path / "none"), MOST)
    with pytest.raises(DataError, match="is a directory"):
        read_whole(str(tmp_path), MOST)
    with pytest.raises(DataError, match="is a device"):
        read_whole("/dev/zero", MOST)
    with pytest.raises(DataError, match="larger than the limit of 1000 B"):
        read_whole(str(tmp_path / "large"), MOST)


def test_a_pipe_is_read_to_its_end() -> None:
    reading, writing = os.pipe()
    try:
        writer = threading.Thread(target=lambda: (os.write(writing, b"some"), os.close(writing)))
        writer.start()
        assert read_whole(f"/proc/self/fd/{reading}", MOST) == b"some"
        writer.join()
    finally:
        os.close(reading)


def test_a_pipe_without_a_writer_is_empty(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")

    assert read_whole(str(tmp_path / "fifo"), MOST) == b""


def test_a_file_that_is_replaced_while_it_is_opened_is_the_old_one_the_new_one_or_an_error(
    tmp_path: Path,
) -> None:
    long, short, path = np.ones(10**5), np.ones(3), tmp_path / "x.npy"
    np.save(path, long)
    is_done = threading.Event()

    def replace() -> None:
        while not is_done.is_set():
            for array in (short, long):
                np.save(tmp_path / "new.npy", array)
                (tmp_path / "new.npy").rename(path)

    thread = threading.Thread(target=replace)
    thread.start()
    try:
        for _ in range(2000):
            try:
                with contextlib.ExitStack() as closers:
                    assert open_array(path, 0, closers).shape in (long.shape, short.shape)
            except DataError as error:
                assert str(error).startswith(f"{path}: ")
    finally:
        is_done.set()
        thread.join()
