"""Outputs get their names exactly once. Kills at every call: `robustness/publication.py`."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from hetsched.errors import CantCreate, HetschedError
from hetsched.store.output_files import (
    OutputFile,
    PreparedOutput,
    create_output,
    publish_all,
)
from robustness.publication import RESULT, TOKEN, published_inode


def prepared(tmp_path: Path, force: bool = False) -> PreparedOutput:
    return written(tmp_path, force).prepare()


def written(tmp_path: Path, force: bool = False) -> OutputFile:
    output = create_output(str(tmp_path / "y.npy"), RESULT.shape, "complex64", force, token=TOKEN)
    os.pwrite(output.fd, RESULT.tobytes(), output.offset)
    return output


def test_publishing_again_changes_nothing(tmp_path: Path) -> None:
    output = prepared(tmp_path)

    output.publish()
    inode = published_inode(tmp_path)

    output.publish()
    assert published_inode(tmp_path) == inode
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
