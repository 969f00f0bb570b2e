"""Results are published exactly once, whenever the process that publishes them ends.

A child process ends before its Nth system call, for every N; then children that recover end
before their Mth; the last one finishes. With and without `--force`, and on file systems without
hard links.
"""

from __future__ import annotations

import errno
import functools
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from benchmarks.results import Bar, Result
from hetsched.store.output_files import PreparedOutput, create_output, remove_unfinished
from robustness.scale import Scale

LACKS: tuple[tuple[str, ...], ...] = ((), ("link",))
"""What a file system may lack."""

CALLS = ("open", "link", "fchmod", "fsync", "close", "replace", "rename", "unlink", "pwrite")
KILLED = 9
RESULT = np.arange(6, dtype="complex64").reshape(2, 3)
TOKEN = "0a1b2c-7-y"
RECOVERY_CALLS = 16
"""System calls of a recovery that only completes a publication, and more."""


@dataclass
class PublicationTally:
    kills: int = 0
    incomplete: int = 0
    """Targets that were neither as before nor complete, at any time."""
    repeated: int = 0
    """Results that were named again."""
    lost: int = 0
    """Results that weren't there in the end."""
    left_over: int = 0
    """Hidden files in the end."""


def published_inode(folder: Path) -> int:
    """Return the inode of the published result; 0 if the target isn't that."""
    try:
        is_result = np.array_equal(np.load(folder / "y.npy"), RESULT)
    except (OSError, ValueError):
        return 0
    return (folder / "y.npy").stat().st_ino if is_result else 0


def publish_and_recover(
    folder: Path,
    force: bool,
    lacks: tuple[str, ...],
    calls: int,
    recovery_calls: tuple[int, ...],
    tally: PublicationTally,
) -> bool:
    """Run one story; return whether its first process was killed."""
    folder.mkdir(parents=True)
    if force:
        (folder / "y.npy").write_text("old")
    was_killed = run_in_child(functools.partial(publish, folder, force), calls, lacks)
    inode = published_inode(folder)
    tally.incomplete += not inode and (folder / "y.npy").exists() != force
    tally.kills += was_killed
    for limit in (*recovery_calls, None):
        tally.kills += run_in_child(functools.partial(recover, folder, force), limit, lacks)
        earlier, inode = inode, published_inode(folder)
        tally.repeated += earlier not in (0, inode)
    tally.lost += not inode
    tally.left_over += sum(path.name != "y.npy" for path in folder.iterdir())
    return was_killed


def publish_everywhere(folder: Path, step: int) -> PublicationTally:
    """Kill at every call; recoveries at every `step`th of theirs, each time at others."""
    tally = PublicationTally()
    for force in (False, True):
        for lacks in LACKS:
            calls, was_killed = 0, True
            while was_killed:
                limits = tuple(range(calls % step, RECOVERY_CALLS, step))
                where = folder / f"{force}-{'-'.join(lacks)}-{calls}" / "data"
                was_killed = publish_and_recover(where, force, lacks, calls, limits, tally)
                calls += 1
    return tally


def measure(scale: Scale) -> Result:
    result = Result(
        "publication",
        "Processes killed while they publish a result",
        ("kills", "incomplete", "published again", "lost", "left over"),
    )
    memory = Path("/dev/shm")  # a killed process loses nothing that it wrote: no need of a disk
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        tally = publish_everywhere(Path(folder), scale.of(16, 2, 1))
    figures = (tally.kills, tally.incomplete, tally.repeated, tally.lost, tally.left_over)
    result.rows.append(tuple(f"{figure:,}" for figure in figures))
    result.data.append(vars(tally))
    result.bars += [
        Bar("processes killed", tally.kills, 100),
        Bar("targets that were incomplete at any time", tally.incomplete, 0, at_least=False),
        Bar("results published again", tally.repeated, 0, at_least=False),
        Bar("results lost, and hidden files", tally.lost + tally.left_over, 0, at_least=False),
    ]
    return result


# ---- the children


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
