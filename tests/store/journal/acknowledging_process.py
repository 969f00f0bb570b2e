"""Accepts jobs one by one, and writes "accepted N" to a pipe when each is in the journal.

python -m tests.store.journal.acknowledging_process FOLDER JOBS FULL|NORMAL
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.store.journal.journal_jobs import CallQueue, accepted, open_journal, write_and_wait


def main(folder: Path, jobs: int, synchronous: str) -> None:
    calls = CallQueue()
    journal = open_journal(folder / "journal.db", calls)
    journal._file.connection.execute(f"PRAGMA synchronous = {synchronous}")
    reading, writing = os.pipe()
    for number in range(1, jobs + 1):
        assert write_and_wait(journal, calls, [accepted(number)]) is None
        os.write(writing, f"accepted {number}".encode())
        os.read(reading, 100)
    journal.close(30.0)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
