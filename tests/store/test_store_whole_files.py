"""Small files read and written whole: exports, pictures."""

import os
import threading
from pathlib import Path

import pytest

from hetsched.errors import DataError, InputMissing
from hetsched.store.input_files import read_whole

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
