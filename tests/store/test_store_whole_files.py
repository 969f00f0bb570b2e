"""Small files read and written whole: exports, pictures."""

import os
import resource
import threading
from pathlib import Path

import pytest

from hetsched.errors import CantCreate, DataError, InputMissing
from hetsched.store.input_files import read_whole
from hetsched.store.output_files import write_whole

MOST = 1000


@pytest.mark.parametrize("raw", [b"", b"x", bytes(range(256)) * 3])
def test_written_bytes_are_read_back(tmp_path: Path, raw: bytes) -> None:
    write_whole(str(tmp_path / "a"), raw)

    assert read_whole(str(tmp_path / "a"), MOST) == raw
    assert os.listdir(tmp_path) == ["a"]


def test_a_file_is_replaced_only_by_force(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"mine")

    with pytest.raises(CantCreate, match="--force"):
        write_whole(str(tmp_path / "a"), b"theirs")

    assert (tmp_path / "a").read_bytes() == b"mine"
    write_whole(str(tmp_path / "a"), b"theirs", force=True)
    assert (tmp_path / "a").read_bytes() == b"theirs"
    assert os.listdir(tmp_path) == ["a"]


def test_a_file_without_room_leaves_nothing(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, before[1]))
    try:
        with pytest.raises(CantCreate, match="no room"):
            write_whole(str(tmp_path / "a"), b"more than ten bytes")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)

    assert os.listdir(tmp_path) == []


def test_a_missing_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CantCreate, match="no folder"):
        write_whole(str(tmp_path / "no" / "a"), b"x")


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
