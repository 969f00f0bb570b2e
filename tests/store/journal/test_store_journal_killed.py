"""Jobs acknowledged by a process that is killed are in the journal that the next one opens."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.store.journal.journal_jobs import contents_of

ROOT = Path(__file__).parents[3]
MANY = 1_000_000


def acknowledged_until_killed(folder: Path, first: int, jobs: int) -> int:
    """Start a process that accepts jobs from `first` on; kill it after some; return the last."""
    module = "tests.store.journal.acknowledging_process"
    command = [sys.executable, "-m", module, str(folder), str(MANY), "FULL", str(first)]
    last = first - 1
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            last = int(line.split()[1])
            if last >= first + jobs:
                process.kill()
                break
        for line in process.stdout:  # what it wrote before it was killed
            last = int(line.split()[1])
    return last


def test_no_acknowledged_job_is_lost_when_the_process_is_killed(tmp_path: Path) -> None:
    first, acknowledged = 1, set[int]()
    for jobs in (7, 30, 100):
        last = acknowledged_until_killed(tmp_path, first, jobs)
        acknowledged |= set(range(first, last + 1))

        contents = contents_of(tmp_path / "journal.db")

        stored = {job.number for job in contents.open_jobs}
        assert acknowledged <= stored
        assert len(stored - acknowledged) <= 1  # written, and killed before it could say so
        assert contents.next_number > max(stored)
        first, acknowledged = contents.next_number, stored
