"""Acknowledged after the sync, published exactly once: whenever a process ends."""

from __future__ import annotations

import errno
import functools
import os
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from served import CORES, serving

from hetsched.store.output_files import PreparedOutput, create_output, remove_unfinished

pytestmark = pytest.mark.stress
CALLS = ("open", "link", "fchmod", "fsync", "close", "replace", "rename", "unlink", "pwrite")
KILLED = 9
RESULT = np.arange(6, dtype="complex64").reshape(2, 3)
TOKEN = "0a1b2c-7-y"
RECOVERY_CALLS = 16
"""System calls of a recovery that only completes a publication, and more."""
DELAY = 0.3


def in_child(action: Callable[[], None], calls: int | None, has_links: bool) -> bool:
    """Run `action` in a process that ends before its Nth call; return whether it did."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            count_down(calls, has_links)
            action()
            status = 0
        finally:
            os._exit(status)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert status in (0, KILLED)
    return status == KILLED


def count_down(remaining: int | None, has_links: bool) -> None:
    def call(real: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        nonlocal remaining
        if remaining == 0:
            os._exit(KILLED)
        remaining = remaining and remaining - 1
        if real is link and not has_links:
            raise OSError(errno.EPERM, "no links")
        return real(*arguments, **named)

    link = os.link
    for name in CALLS:
        setattr(os, name, functools.partial(call, getattr(os, name)))


class Publication:
    """A daemon's part in one result; files beside its folder stand in for the journal."""

    def __init__(self, folder: Path, force: bool) -> None:
        self.folder, self.force = folder, force
        self.target = folder / "y.npy"
        folder.mkdir(parents=True)
        if force:
            self.target.write_text("old")

    def publish(self) -> None:
        made = create_output(str(self.target), RESULT.shape, "complex64", self.force, token=TOKEN)
        os.pwrite(made.fd, RESULT.tobytes(), made.offset)
        prepared = made.prepare()
        self.record("publishing", msgspec.msgpack.encode(prepared))
        prepared.publish()
        self.record("ended", b"")

    def recover(self) -> None:
        """As a daemon at its start: finish a publication, or run the job again."""
        record = self.folder.parent / "publishing"
        if record.with_name("ended").exists():
            return
        if record.exists():
            msgspec.msgpack.decode(record.read_bytes(), type=PreparedOutput).publish()
            self.record("ended", b"")
        else:
            remove_unfinished(str(self.target), TOKEN)
            self.publish()

    def record(self, name: str, content: bytes) -> None:
        path = self.folder.parent / f"{name}.new"
        path.write_bytes(content)
        path.replace(self.folder.parent / name)

    def inode(self) -> int:
        """Of the complete result; 0 if the target is as before."""
        if not self.target.exists() or self.target.read_bytes() == b"old":
            assert self.target.exists() == self.force
            return 0
        assert np.array_equal(np.load(self.target), RESULT)
        return self.target.stat().st_ino


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("has_links", [True, False])
def test_a_result_is_published_once_whenever_its_process_ends(
    tmp_path: Path, stress: Any, force: bool, has_links: bool
) -> None:
    """The process ends before its Nth call, for every N; those that recover before their Mth."""
    kills: Counter[bool] = Counter()
    was_killed, calls = True, 0
    while was_killed:
        publication = Publication(tmp_path / str(calls) / "data", force)
        was_killed = in_child(publication.publish, calls, has_links)
        kills[was_killed] += 1
        inode = publication.inode()
        for limit in (*range(RECOVERY_CALLS), None):
            kills[in_child(publication.recover, limit, has_links)] += 1
            assert inode in (0, publication.inode()), "published again"
            inode = publication.inode()
        assert inode and os.listdir(publication.folder) == ["y.npy"]
        calls += 1
    stress.record("kills", kills[True])


def can_trace() -> bool:
    command = ["strace", "-qq", "-e", "trace=none", "true"]
    return bool(shutil.which("strace")) and subprocess.run(command, check=False).returncode == 0


def test_a_durable_job_is_acknowledged_after_its_sync(stress: Any) -> None:
    if not can_trace():
        pytest.skip("strace is missing or mustn't trace")
    inject = f"inject=fsync,fdatasync:delay_enter={int(1e6 * DELAY)}"
    # -D: the daemon keeps its place as our child, and strace is a process beside it.
    trace = ("strace", "-D", "-f", "-qq", "-o", "/dev/null", "-e", inject)
    with serving(CORES, trace) as daemon, daemon.client() as client:
        for _ in range(stress.scaled(10)):
            begin = time.monotonic()
            job = client.submit("fft", batch="1x8x8", hold=True)
            assert time.monotonic() - begin >= DELAY
            assert job.durability == "durable"
