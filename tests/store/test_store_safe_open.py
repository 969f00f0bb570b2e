"""Paths that clients name: nothing but regular files is opened, and no link into /proc."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from hetsched.errors import CantCreate, DataError, InputMissing
from hetsched.store.arrays import safe_open
from hetsched.store.arrays.input_files import open_npy, read_whole
from hetsched.store.arrays.output_files import create_output
from hetsched.store.arrays.safe_open import open_path


@pytest.fixture(params=["openat2", "fallback"])
def opener(request: pytest.FixtureRequest) -> Callable[[str], int]:
    return open_path if request.param == "openat2" else safe_open._open_path_without_openat2


@pytest.fixture
def array_file(tmp_path: Path) -> Path:
    np.save(tmp_path / "x.npy", np.zeros(4))
    return tmp_path / "x.npy"


def test_ordinary_links_are_followed(opener: Callable[[str], int], array_file: Path) -> None:
    link = array_file.with_name("link")
    link.symlink_to(array_file)
    fd = opener(str(link))
    assert os.fstat(fd).st_ino == array_file.stat().st_ino
    os.close(fd)


@pytest.mark.parametrize("magic", ["/proc/self/fd/{fd}", "/proc/thread-self/fd/{fd}", "{link}"])
def test_links_of_proc_are_refused(
    opener: Callable[[str], int], array_file: Path, magic: str
) -> None:
    with array_file.open("rb") as file:
        link = array_file.with_name("link")
        link.symlink_to(f"/proc/self/fd/{file.fileno()}")
        with pytest.raises(OSError) as caught:
            opener(magic.format(fd=file.fileno(), link=link))
    assert caught.value.errno == errno.ELOOP


def test_a_descriptor_of_the_daemon_is_no_input(array_file: Path) -> None:
    with array_file.open("rb") as file, pytest.raises(InputMissing, match="own path"):
        open_npy(f"/proc/self/fd/{file.fileno()}")


def test_an_output_is_not_created_in_the_daemons_folder() -> None:
    with pytest.raises(CantCreate, match="own path"):
        create_output("/proc/self/cwd/y.npy", (1,), "f4")


@pytest.mark.parametrize("path", ["/dev/zero", "/dev/full"])
def test_a_device_is_never_opened(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(safe_open, "reopen", None)
    with pytest.raises(DataError, match="a device"):
        open_npy(path)


def test_commands_may_read_what_standard_input_is(array_file: Path) -> None:
    with array_file.open("rb") as file:
        raw = read_whole(f"/proc/self/fd/{file.fileno()}", 1000)
    assert raw == array_file.read_bytes()


def test_a_null_byte_is_refused(opener: Callable[[str], int]) -> None:
    with pytest.raises(ValueError):
        opener("a\0b")
