from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched.errors import CantCreate, DataError, HetschedError
from hetsched.store.output_files import (
    OutputFile,
    PreparedOutput,
    create_output,
    mark_finished,
    publish_all,
    save_array,
)
from hetsched.units import common, merged, without

RESULT = np.arange(6, dtype="complex64").reshape(2, 3)
TOKEN = "0a1b2c-7-y"


def create(
    path: Path, shape: tuple[int, ...] = (2, 3), **arguments: object
) -> CantCreate | DataError:
    with pytest.raises((CantCreate, DataError)) as caught:
        create_output(str(path), shape, "complex64", **arguments)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)
    return caught.value


def test_an_output_is_not_seen_until_it_is_published(tmp_path: Path) -> None:
    output = create_output(str(tmp_path / "y.npy"), (2, 3), "complex64")
    os.pwrite(output.fd, np.arange(6, dtype="complex64").tobytes(), output.offset)
    before = os.listdir(tmp_path)

    output.publish()

    assert [name for name in before if not name.startswith(".")] == []
    assert os.listdir(tmp_path) == ["y.npy"]
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), np.arange(6).reshape(2, 3))


def hidden_of(path: Path) -> Path:
    output = create_output(str(path), (3,), "f8")
    output.discard()
    return Path(output.hidden)


def leave_folder(hidden: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hidden.mkdir()


def leave_link(hidden: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hidden.symlink_to(hidden)


def leave_what_stays(hidden: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a sticky folder a file of another user."""
    hidden.touch()
    unlink = os.unlink

    def refuse(path: Path, **named: object) -> None:
        if Path(path) == hidden:
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))
        unlink(path)

    monkeypatch.setattr(os, "unlink", refuse)


@pytest.mark.parametrize("leave", [leave_folder, leave_link, leave_what_stays])
def test_what_can_not_be_replaced_is_in_nobodys_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, leave: Callable[..., None]
) -> None:
    hidden = hidden_of(tmp_path / "y.npy")
    leave(hidden, monkeypatch)
    create(tmp_path / "y.npy", alone=True)

    save_array(str(tmp_path / "y.npy"), np.ones(3))

    assert np.load(tmp_path / "y.npy").tolist() == [1, 1, 1]
    assert sorted(tmp_path.iterdir()) == sorted([hidden, tmp_path / "y.npy"])


def test_two_writers_do_not_share_a_file_without_locks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object) -> None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(fcntl, "flock", fail)
    path = tmp_path / "y.npy"
    for number, file in enumerate([create_output(str(path), (3,), "f8", True) for _ in range(2)]):
        file.write(np.full(3, number, "f8").tobytes(), file.offset)
        file.publish()
        assert np.load(path).tolist() == [number] * 3
    assert os.listdir(tmp_path) == ["y.npy"]


def test_a_new_file_that_another_process_locks_first_is_left_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hidden, lock = hidden_of(tmp_path / "y.npy"), fcntl.flock
    others: list[int] = []

    def lock_second(fd: int, how: int) -> None:
        if not others:
            others.append(os.open(hidden, os.O_RDWR))
            lock(others[0], how)
        lock(fd, how)

    monkeypatch.setattr(fcntl, "flock", lock_second)
    save_array(str(tmp_path / "y.npy"), np.ones(3))

    os.close(others[0])
    assert sorted(tmp_path.iterdir()) == sorted([hidden, tmp_path / "y.npy"])


def test_a_hidden_file_of_another_writer_is_not_published(tmp_path: Path) -> None:
    output = create_output(str(tmp_path / "y.npy"), (3,), "f8")
    (tmp_path / "theirs").write_text("theirs")
    (tmp_path / "theirs").replace(output.hidden)

    with pytest.raises(CantCreate, match="another process or call is writing it"):
        output.publish()
    output.discard()

    assert Path(output.hidden).read_text() == "theirs"
    assert not (tmp_path / "y.npy").exists()


def test_the_umask_applies(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        create_output(str(tmp_path / "y.npy"), (2, 3), "complex64").publish()
    finally:
        os.umask(before)

    assert (tmp_path / "y.npy").stat().st_mode & 0o777 == 0o640


def test_a_symbolic_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "real.npy").write_text("old")
    (tmp_path / "link.npy").symlink_to("real.npy")

    create_output(str(tmp_path / "link.npy"), (2, 3), "complex64", True).publish()

    assert (tmp_path / "link.npy").is_symlink()
    assert np.load(tmp_path / "real.npy").shape == (2, 3)


@pytest.mark.parametrize("force", [False, True])
def test_the_input_is_never_the_output(tmp_path: Path, npy: str, force: bool) -> None:
    os.link(npy, tmp_path / "same.npy")
    status = os.stat(npy)
    identity = (status.st_dev, status.st_ino)

    error = create(tmp_path / "same.npy", force=force, inputs=[identity])

    assert error.code == DataError.code
    assert np.load(npy).shape == (2, 3)


def test_impossible_paths_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    os.mkfifo(tmp_path / "fifo")
    places = [tmp_path, tmp_path / "fifo", tmp_path / "none/y", tmp_path / "file/y"]

    codes = [create(place, force=True).code for place in [*places, Path("/dev/null")]]

    assert codes == [CantCreate.code] * 5


@pytest.mark.parametrize(("code", "expected"), [(errno.EDQUOT, 73), (errno.EIO, 74)])
def test_a_quota_that_the_disk_finds_exceeded_at_the_sync_is_no_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, expected: int
) -> None:
    def fail(fd: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(HetschedError) as caught:
        save_array(str(tmp_path / "y.npy"), np.ones(3))

    assert caught.value.code == expected
    assert os.listdir(tmp_path) == []


def test_save_writes_any_layout(tmp_path: Path) -> None:
    array = np.arange(24, dtype=">f8").reshape(2, 3, 4).transpose(2, 0, 1)[::2]

    save_array(str(tmp_path / "y.npy"), array)

    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), array)


def prepared(tmp_path: Path, force: bool = False) -> PreparedOutput:
    output = create_output(str(tmp_path / "y.npy"), RESULT.shape, "complex64", force, token=TOKEN)
    os.pwrite(output.fd, RESULT.tobytes(), output.offset)
    return output.prepare()


def test_publishing_again_changes_nothing(tmp_path: Path) -> None:
    output = prepared(tmp_path)

    output.publish()
    inode = (tmp_path / "y.npy").stat().st_ino

    output.publish()
    assert (tmp_path / "y.npy").stat().st_ino == inode
    assert np.array_equal(np.load(tmp_path / "y.npy"), RESULT)
    assert os.listdir(tmp_path) == ["y.npy"]


def test_a_result_that_was_replaced_since_is_left_alone(tmp_path: Path) -> None:
    output = prepared(tmp_path, force=True)
    output.publish()
    (tmp_path / "y.npy").unlink()
    (tmp_path / "y.npy").write_text("newer")

    output.publish()

    assert (tmp_path / "y.npy").read_text() == "newer"


def test_a_target_created_meanwhile_is_kept_and_the_error_repeated(tmp_path: Path) -> None:
    output = prepared(tmp_path)
    (tmp_path / "y.npy").write_text("theirs")

    for _ in range(2):  # the second time after a crash, before the end was recorded
        with pytest.raises(CantCreate, match="meanwhile; use --force"):
            output.publish()
    output.discard()

    assert (tmp_path / "y.npy").read_text() == "theirs"
    assert os.listdir(tmp_path) == ["y.npy"]


def trace(monkeypatch: pytest.MonkeyPatch, folder: Path) -> list[str]:
    """Return a list that gets the system calls which make a file durable or name it."""
    steps: list[str] = []

    def traced(name: str, real: Callable[..., object]) -> Callable[..., object]:
        def call(*arguments: object, **named: object) -> object:
            subject = str(arguments[0])
            if name == "fsync":
                subject = os.readlink(f"/proc/self/fd/{arguments[0]}")
            steps.append(f"{name} {'folder' if subject == str(folder) else 'file'}")
            return real(*arguments, **named)

        return call

    for name in ("fsync", "link", "replace"):
        monkeypatch.setattr(os, name, traced(name, getattr(os, name)))
    return steps


def test_the_data_are_synced_before_the_record_and_the_name_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = trace(monkeypatch, tmp_path)
    output = prepared(tmp_path, force=True)
    steps.append("recorded")
    output.publish()

    assert steps == [
        *("fsync file", "fsync folder"),
        *("recorded", "replace file", "fsync folder"),
    ]


@pytest.mark.parametrize("code", [errno.EMFILE, errno.EIO, errno.EDQUOT])
def test_after_any_error_the_next_call_names_what_lacks_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    outputs = several(tmp_path)
    link = os.link

    def fail(hidden: Path, target: Path) -> None:
        if target.name == "b.npy":
            raise OSError(code, os.strerror(code))
        link(hidden, target)

    with monkeypatch.context() as context:
        context.setattr(os, "link", fail)
        with pytest.raises(HetschedError):
            publish_all(outputs)
    publish_all(outputs)

    assert sorted(os.listdir(tmp_path)) == ["a.npy", "b.npy", "c.npy"]


def several(folder: Path) -> list[PreparedOutput]:
    files = [create_output(str(folder / f"{name}.npy"), (1,), "uint8") for name in "abc"]
    return [file.prepare() for file in files]


RANGES = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60))).map(merged)


def opened(path: Path, identity: str = "job 1") -> OutputFile:
    return create_output(str(path), (8, 4), "f8", token="journal-1", identity=identity)


def crashed(path: Path) -> None:
    """Write a half, and end without closing."""
    output = opened(path)
    os.pwrite(output.fd, np.ones((4, 4)).tobytes(), output.offset)
    mark_finished([(output.hidden, output.fd, output.offset)], "job 1", ((0, 4),))
    os.close(output.fd)


def test_what_is_marked_is_there_after_a_crash(tmp_path: Path) -> None:
    crashed(tmp_path / "y.npy")

    output = opened(tmp_path / "y.npy")
    os.pwrite(output.fd, np.full((4, 4), 2.0).tobytes(), output.offset + 4 * 32)
    output.publish()

    assert output.finished == ((0, 4),)
    assert os.listdir(tmp_path) == ["y.npy"]
    assert np.load(tmp_path / "y.npy")[:, 0].tolist() == [1, 1, 1, 1, 2, 2, 2, 2]


def test_another_job_or_another_input_starts_over(tmp_path: Path) -> None:
    crashed(tmp_path / "y.npy")

    output = opened(tmp_path / "y.npy", "job 1 on another input")

    assert output.finished == ()
    assert not any(os.pread(output.fd, 1000, output.offset))
    output.discard()
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("harm", ["cut", "replaced", "unmarked", "garbage", "header"])
def test_a_file_that_is_not_as_noted_is_not_used(tmp_path: Path, harm: str) -> None:
    crashed(tmp_path / "y.npy")
    (hidden,) = tmp_path.glob(".*.part")
    record = hidden.with_name(f"{hidden.name}s")
    match harm:
        case "cut":
            os.truncate(hidden, 200)
        case "replaced":
            raw = hidden.read_bytes()
            hidden.rename(tmp_path / "other")
            hidden.write_bytes(raw)
        case "unmarked":
            record.unlink()
        case "garbage":
            record.write_bytes(b"\xc1 garbage")
        case "header":
            with hidden.open("r+b") as file:
                file.write(b"no array")

    output = opened(tmp_path / "y.npy")

    assert output.finished == ()
    output.discard()


@given(RANGES, RANGES, st.integers(0, 60), st.integers(0, 60))
def test_ranges_are_sets_of_units(
    a: tuple[tuple[int, int], ...], b: tuple[tuple[int, int], ...], first: int, end: int
) -> None:
    def units(ranges: object) -> set[int]:
        return {unit for begin, stop in ranges for unit in range(begin, stop)}  # type: ignore[attr-defined]

    assert units(common([a, b])) == units(a) & units(b)
    assert units(without(first, end, a)) == set(range(first, end)) - units(a)
    assert units(merged([*a, *b])) == units(a) | units(b)
