"""The journal is synced before a job is acknowledged: as the kernel saw it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from robustness.strace import AckOrder, SystemCall, ack_order, is_available, traced

JOBS = 20
ROOT = Path(__file__).parents[3]


def is_ack(call: SystemCall) -> bool:
    return '"accepted ' in call.arguments


def order_of(folder: Path, synchronous: str) -> AckOrder:
    output = folder / "trace"
    module = "tests.store.journal.acknowledging_process"
    command = [sys.executable, "-m", module, str(folder), str(JOBS), synchronous]
    subprocess.run(
        traced(command, output), cwd=ROOT, check=True, timeout=120, stdout=subprocess.PIPE
    )
    with output.open(encoding="utf-8", errors="replace") as lines:
        return ack_order(lines, is_ack)


@pytest.mark.skipif(not is_available(), reason="strace isn't installed or mustn't trace")
def test_every_acknowledgement_follows_a_sync(tmp_path: Path) -> None:
    assert order_of(tmp_path, "FULL") == AckOrder(JOBS, early=0)


@pytest.mark.skipif(not is_available(), reason="strace isn't installed or mustn't trace")
def test_acknowledgements_without_a_sync_are_noticed(tmp_path: Path) -> None:
    assert order_of(tmp_path, "NORMAL").early > JOBS // 2


TRACE = """\
10 pwrite64(5</s/journal.db-wal>, "\\0traced-0000001"..., 4096, 32) = 4096
10 fdatasync(5</s/journal.db-wal> <unfinished ...>
11 sendto(7<UNIX-STREAM:[1]>, "hello", 5, 0, NULL, 0) = 5
10 <... fdatasync resumed>)          = 0
10 pwrite64(5</s/journal.db-wal>, "another record"..., 4096, 32) = 4096
11 sendto(7<UNIX-STREAM:[1]>, "accepted 1", 5, 0, NULL, 0) = 5
10 fdatasync(5</s/journal.db-wal>)   = 0
10 pwrite64(5</s/journal.db-wal>, "traced-0000001traced-0000002"..., 4096, 32) = 4096
10 fdatasync(5</s/journal.db-wal> <unfinished ...>
11 sendto(7<UNIX-STREAM:[1]>, "accepted 2", 5, 0, NULL, 0) = 5
10 <... fdatasync resumed>)          = 0
11 sendto(7<UNIX-STREAM:[1]>, "accepted 3", 5, 0, NULL, 0) = 5
10 pwrite64(5</s/journal.db-wal>, "traced-0000004"..., 4096, 32) = 4096
10 fdatasync(5</s/journal.db-wal>) = -1 EIO (Input/output error)
11 sendto(7<UNIX-STREAM:[1]>, "accepted 4", 5, 0, NULL, 0) = 5
--- strange line
"""


def test_only_a_sync_that_succeeded_in_between_counts() -> None:
    assert ack_order(TRACE.splitlines(), is_ack) == AckOrder(4, early=3)
