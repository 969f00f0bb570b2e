"""A full disk and EIO at every operation of the journal: an error is reported, and it goes on.

A script opens the journal, writes, checkpoints and closes it; its Nth operation on the disk fails,
for every N, once or until the fault is over. Every write gets an outcome (73 or 74), the next one
after the fault succeeds, and after a power cut at the end exactly what was reported is there. An
fsync that fails loses the pages, as on Linux.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from benchmarks.results import Bar, Result
from hetsched.errors import CantCreate, ConfigError, HetschedError, IOFailure
from hetsched.store.journal_file import JournalFile, forget_refused
from hetsched.store.journal_records import (
    JournaledJob,
    OnWritten,
    Record,
    Write,
)
from robustness.disk import silent
from robustness.disk.journal_model import BOUNDS, JournalModel, random_records, reserving
from robustness.disk.memory_disk import MemoryDisk
from robustness.disk.memory_vfs import disk_full, io_error, mounted
from robustness.power_cuts import CHECKPOINT_PAGES, PATH
from robustness.scale import Scale

STEPS = 8
"""Commits of the script."""
FAULT_COMMITS = 3
"""A fault that lasts is over when this many commits have failed."""

FAULTS: dict[str, Callable[[str], Exception | None]] = {
    "disk full": lambda kind: disk_full() if kind in ("write", "create") else None,
    "EIO": io_error,
}


@dataclass
class FaultTally:
    runs: int = 0
    reported: int = 0
    """Errors reported to those who wait for a write."""
    wrong_codes: int = 0
    lost: int = 0
    """Jobs that aren't in the journal as reported."""
    stuck: int = 0
    """Journals that didn't work again after the fault."""

    def add(self, other: FaultTally) -> None:
        for name, figure in dataclasses.asdict(other).items():
            setattr(self, name, getattr(self, name) + figure)


@dataclass
class FaultyRun:
    """The script with a fault from the Nth operation on."""

    error: Callable[[str], Exception | None]
    at: int
    lasts: bool
    rng: random.Random
    tally: FaultTally
    disk: MemoryDisk = field(default_factory=MemoryDisk)
    model: JournalModel = field(default_factory=JournalModel)
    kept: list[Write] = field(default_factory=list)
    _fault_commits: int = 0
    _is_over: bool = False

    def run(self) -> bool:
        """Run the script; return whether the fault occurred."""
        self.disk.fault = self._fault
        with mounted(self.disk) as vfs:
            file = self._open(vfs)
            contents = file.load(0)
            self.reservations: list[Record] = []
            self.numbers = reserving(contents, self.reservations)
            for step in range(STEPS):
                self._step(file, 1e9 + step)
            self._end_fault()
            self._commit(file, [])
            self.tally.stuck += bool(self.kept)
            self.disk.is_off = True
            file.close(None)
        occurred = self.disk.operations >= self.at
        self.disk = self.disk.after_cut(self.rng)
        with mounted(self.disk) as vfs:
            file = JournalFile(PATH, BOUNDS, 1e9, vfs)
            self.tally.lost += self.model.missing_from(file.load(BOUNDS.jobs))
            file.close(None)
        self.tally.runs += 1
        return occurred

    def _open(self, vfs: str) -> JournalFile:
        """Open the journal, at the second attempt if the fault occurs at the first."""
        try:
            return JournalFile(PATH, BOUNDS, 1e9, vfs, checkpoint_pages=CHECKPOINT_PAGES)
        except ConfigError:
            self._end_fault()
            return JournalFile(PATH, BOUNDS, 1e9, vfs, checkpoint_pages=CHECKPOINT_PAGES)

    def _step(self, file: JournalFile, now: float) -> None:
        records = random_records(self.rng, self.model, self.numbers, now)
        records += self.reservations
        self.reservations.clear()
        refused = self._commit(file, [_write(record, self._on_done) for record in records])
        self.model = self.model.after([record for record in records if record not in refused])
        self.numbers.reserved = file.reserved
        file.maintain(now)

    def _commit(self, file: JournalFile, new: Sequence[Write]) -> list[Record]:
        """Write as `Journal` does; return the records reported as not written."""
        writes = [*self.kept, *new]
        self.kept = []
        try:
            file.commit(writes)
        except HetschedError as error:
            self.tally.reported += 1
            self.tally.wrong_codes += error.code not in (CantCreate.code, IOFailure.code)
            self.kept = [write for write in writes if write.on_done is None]
            self.kept += forget_refused(writes)
            self._fault_commits += 1
            if self._fault_commits >= FAULT_COMMITS:
                self._end_fault()
            return [record for write in new if write.on_done for record in write.records]
        return []

    def _fault(self, kind: str) -> Exception | None:
        if self._is_over or self.disk.operations < self.at:
            return None
        error = self.error(kind)
        if error is not None and not self.lasts:
            self._end_fault()
        return error

    def _end_fault(self) -> None:
        self._is_over = True

    @staticmethod
    def _on_done(outcome: HetschedError | None) -> None:
        """Only marks a write that someone waits for; the outcome is what `commit` returns."""


def _write(record: Record, on_done: OnWritten) -> Write:
    """Someone waits for new jobs; the rest is kept until it is written."""
    return Write((record,), on_done if isinstance(record, JournaledJob) else None)


def fail_everywhere(name: str, lasts: bool, seed: int, stride: int, tally: FaultTally) -> None:
    """Run the script with the fault at every `stride`th operation, until none is left."""
    occurs, at = True, 0
    while occurs:
        at += stride
        occurs = FaultyRun(FAULTS[name], at, lasts, random.Random(seed), tally).run()


@silent
def measure(scale: Scale) -> Result:
    seeds, stride = scale.of(1, 5, 100), scale.of(3, 1, 1)
    result = Result(
        "disk_faults",
        "Faults of the disk at every operation of the journal",
        ("fault", "runs", "errors reported", "wrong codes", "jobs lost", "stuck"),
    )
    total = FaultTally()
    for name in FAULTS:
        for lasts in (False, True):
            tally = FaultTally()
            for seed in range(scale.seed, scale.seed + seeds):
                fail_everywhere(name, lasts, seed, stride, tally)
            label = f"{name}, {'until it is over' if lasts else 'once'}"
            figures = dataclasses.astuple(tally)
            result.rows.append((label, *(f"{figure:,}" for figure in figures)))
            result.data.append({"fault": label, **dataclasses.asdict(tally)})
            total.add(tally)
    result.bars += [
        Bar("jobs lost, or there though refused", total.lost, 0, at_least=False),
        Bar("exit codes other than 73 and 74", total.wrong_codes, 0, at_least=False),
        Bar("journals that stayed unusable", total.stuck, 0, at_least=False),
    ]
    return result
