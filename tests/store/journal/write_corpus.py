"""Writes a file for the corpus in tests/data: run once for each version of the journal's format.

`.venv/bin/python -m tests.store.journal.write_corpus`, from the project's folder.
"""

from __future__ import annotations

from pathlib import Path

from hetsched.errors import ErrorRecord
from hetsched.job import ArenaRef, DeviceReport, Done, Failed, FileOut, FileRef, JobReport, JobSpec
from hetsched.store.arrays.publication import PreparedOutput
from hetsched.store.journal.journal_db import FORMAT
from hetsched.store.journal.journal_file import JournalFile
from hetsched.store.journal.pending_writes import Write
from hetsched.store.journal.records import (
    HistoryBounds,
    InputStamp,
    JobAccepted,
    JobChanged,
    JobEnded,
    JobPublishing,
    JobStarted,
    Record,
)

START = 1.7e9
PARAMS = {"batch": "4x64x64"}
FILES = JobSpec(
    workload="fft",
    params=PARAMS,
    inputs={"x": FileRef("/data/in.npy")},
    outputs={"y": FileOut("/data/out.npy", force=True)},
)
MEMORY = JobSpec(
    workload="fft", params=PARAMS, inputs={"x": ArenaRef(3, (4, 64, 64), "complex64")}
)
OUTPUT = PreparedOutput(b"/data/.hetsched-a.part", b"/data/out\xff.npy", True, 1, 2, 3)
DEVICE = DeviceReport(
    device="cpu0", kind="cpu", variant="pyfftw", share=4, seconds=0.25, chunks=(2, 2)
)


def report(number: int, state: str, error: ErrorRecord | None = None) -> JobReport:
    return JobReport(
        job=number,
        state=state,
        workload="fft",
        load=4,
        seconds=0.25,
        devices=(DEVICE,),
        params=PARAMS,
        error=error,
    )


def ended(number: int, code: int) -> JobEnded:
    if not code:
        return JobEnded(number, Done(number, report(number, "done")), START + 10 * number)
    error = ErrorRecord(code, "a reason")
    state = Failed(number, report(number, "failed", error), error)
    return JobEnded(number, state, START + 10 * number)


def records() -> list[Record]:
    stamp = InputStamp("x", "/data/in.npy", 11, 12, 13)
    specs = {1: FILES, 2: FILES, 3: FILES, 4: MEMORY, 5: FILES, 6: FILES}
    return [
        *(
            JobAccepted(
                number,
                spec,
                "night-run" if number == 1 else "",
                START + number,
                spec is FILES,
                (stamp,) if spec is FILES else (),
            )
            for number, spec in specs.items()
        ),
        JobChanged(1, priority=5, held=True),
        JobStarted(2, 2, START + 22, failures=1),
        JobStarted(3, 1, START + 33),
        JobPublishing(3, (OUTPUT,)),
        ended(4, 0),
        ended(5, 1),
        ended(6, 130),
    ]


if __name__ == "__main__":
    path = Path(__file__).parents[2] / "data" / f"journal-v{FORMAT.version}.db"
    file = JournalFile(path, HistoryBounds(seconds=1e12), START)
    assert file.commit([Write(tuple(records()))]) == [None]
    file.close(7)
