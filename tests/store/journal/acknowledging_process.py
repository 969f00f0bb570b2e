"""Accepts jobs one by one, and writes "accepted N" to standard output when each is in the journal.

python -m tests.store.journal.acknowledging_process FOLDER JOBS FULL|NORMAL [FIRST]
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from robustness.strace import job_id
from tests.store.journal.journal_jobs import CallQueue, accepted, open_journal, write_and_wait


def main(folder: Path, jobs: int, synchronous: str, first: int) -> None:
    calls = CallQueue()
    journal = open_journal(folder / "journal.db", calls)
    journal._file.connection.execute(f"PRAGMA synchronous = {synchronous}")
    for number in range(first, first + jobs):
        assert write_and_wait(journal, calls, [accepted(number, client_id=job_id(number))]) is None
        os.write(sys.stdout.fileno(), f"accepted {number}\n".encode())
    journal.close(60)


if __name__ == "__main__":
    _, folder_name, count, level, *start = sys.argv
    main(Path(folder_name), int(count), level, int(start[0]) if start else 1)
