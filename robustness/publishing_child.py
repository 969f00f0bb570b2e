"""A process that publishes an output and ends at its Nth system call, and one that recovers."""

from __future__ import annotations

import errno
import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from hetsched.store.output_files import PreparedOutput, create_output, remove_unfinished

CALLS = ("open", "link", "fchmod", "fsync", "close", "replace", "rename", "unlink", "pwrite")
KILLED = 9
RESULT = np.arange(6, dtype="complex64").reshape(2, 3)
TOKEN = "0a1b2c-7-y"


def run_in_child(action: Callable[[], None], calls: int | None, lacks: tuple[str, ...]) -> bool:
    """Run `action` in a child that ends before its Nth call; return whether it was killed.

    `lacks`: what the file system doesn't have, perhaps "link".
    """
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            _install(calls, lacks)
            action()
            status = 0
        finally:
            os._exit(status)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert status in (0, KILLED), status
    return status == KILLED


def _install(calls: int | None, lacks: tuple[str, ...]) -> None:
    remaining = [calls]

    def call(name: str, real: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        if remaining[0] is not None:
            remaining[0] -= 1
            if remaining[0] < 0:
                os._exit(KILLED)
        if name == "link" and "link" in lacks:
            raise OSError(errno.EPERM, "no links")
        return real(*arguments, **named)

    for name in CALLS:
        setattr(os, name, functools.partial(call, name, getattr(os, name)))


def publish(folder: Path, force: bool) -> None:
    """Do what the daemon does with a result; the records stand in for the journal's."""
    output = create_output(str(folder / "y.npy"), RESULT.shape, "complex64", force, token=TOKEN)
    os.pwrite(output.fd, RESULT.tobytes(), output.offset)
    prepared = output.prepare()
    _record(folder, "publishing", msgspec.msgpack.encode(prepared))
    prepared.publish()
    _record(folder, "ended", b"")


def recover(folder: Path, force: bool) -> None:
    """Do what the daemon does at its start: finish a publication, or run the job again."""
    if has_record(folder, "ended"):
        return
    record = folder.parent / "publishing"
    if record.exists():
        msgspec.msgpack.decode(record.read_bytes(), type=PreparedOutput).publish()
        _record(folder, "ended", b"")
        return
    remove_unfinished(str(folder / "y.npy"), TOKEN)
    publish(folder, force)


def has_record(folder: Path, name: str) -> bool:
    return (folder.parent / name).exists()


def _record(folder: Path, name: str, content: bytes) -> None:
    temporary = folder.parent / f"{name}.new"
    temporary.write_bytes(content)
    temporary.replace(folder.parent / name)
