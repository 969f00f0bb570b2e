"""Power cuts: what the journal acknowledged is there afterwards, in a file that isn't damaged.

The disk is in memory (`disk/memory_disk.py`); the journal's code and SQLite are the real ones. The
power fails at a random operation, also while the file is created, checked, recovered,
checkpointed, trimmed, shortened, repaired and closed; then the next daemon opens what is left,
and so on.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.results import Bar, Result
from hetsched.errors import HetschedError
from hetsched.store.database import DatabaseFormat
from hetsched.store.journal_file import JournalFile
from hetsched.store.journal_records import FORMAT, JournalContents, Record, Write
from robustness.disk import silent
from robustness.disk.journal_model import (
    BOUNDS,
    JournalModel,
    model_of,
    random_records,
    reserving,
)
from robustness.disk.memory_disk import MemoryDisk, PowerLost
from robustness.disk.memory_vfs import io_error, mounted
from robustness.scale import Scale

PATH = Path("/journal.db")
MAX_OPERATIONS = 200
"""Operations of the disk until a cut; a commit takes about seven."""
CHECKPOINT_PAGES = 12
"""So that a checkpoint follows every second or third commit."""
CUTS_PER_DISK = 50

FAULTY_LIVES = 0.3
FAULT_RATE = 0.03
"""In some lives the disk also fails now and then, with pages lost by failed syncs."""

NOT_SYNCED = dataclasses.replace(
    FORMAT, pragmas=FORMAT.pragmas.replace("synchronous = FULL", "synchronous = NORMAL")
)
"""The journal as it must not be: acknowledged before it is on disk. The test must notice."""


@dataclass
class Tally:
    cuts: int = 0
    acknowledged: int = 0
    """Records."""
    failed: int = 0
    """Commits that failed while there was power."""
    lost: int = 0
    """Jobs that aren't as acknowledged."""
    damaged: int = 0
    """Files that the next daemon can't open."""
    repeated: int = 0
    """Daemons that would have given a number again."""


@dataclass
class Life:
    """One disk through many power cuts. `states`: what may be on it, oldest first."""

    rng: random.Random
    file_format: DatabaseFormat
    tally: Tally
    disk: MemoryDisk = field(default_factory=MemoryDisk)
    states: list[JournalModel] = field(default_factory=lambda: [JournalModel()])
    last_number: int = 0
    now: float = 1e9

    def run_until_cut(self) -> None:
        """Start a daemon, check what it finds, write, and cut the power at some operation."""
        fails = self.rng.random() < FAULTY_LIVES
        self.disk.fault = _cut_after(self.rng, FAULT_RATE if fails else 0.0)
        with mounted(self.disk) as vfs:
            file = self._open(vfs)
            if file is not None:
                self._check(file.load(len(self.states[-1].jobs) + BOUNDS.jobs))
                self._write(file)
        self.disk = self.disk.after_cut(self.rng)
        self.tally.cuts += 1

    def _open(self, vfs: str) -> JournalFile | None:
        try:
            return JournalFile(PATH, BOUNDS, self.now, vfs, self.file_format, CHECKPOINT_PAGES)
        except HetschedError as error:
            if "damaged" in str(error):
                self.tally.damaged += 1
                self.disk = MemoryDisk()
                self.states = [JournalModel()]
            return None

    def _check(self, contents: JournalContents) -> None:
        """Compare with what was acknowledged: a commit that was cut has happened or hasn't."""
        self.tally.lost += min(model.missing_from(contents) for model in self.states)
        self.tally.repeated += contents.next_number <= self.last_number
        self.states = [model_of(contents)]
        self._reservations: list[Record] = []
        self._numbers = reserving(contents, self._reservations)

    def _write(self, file: JournalFile) -> None:
        is_orderly = self.rng.random() < 0.2
        kept: list[Write] = []
        while not self.disk.is_off:
            self.now += 1
            records = random_records(self.rng, self.states[-1], self._numbers, self.now)
            records += self._reservations
            self._reservations.clear()
            self.last_number = self._numbers.last
            self.states.append(self.states[-1].after(records))
            kept += [Write((record,)) for record in records]
            try:
                outcomes = file.commit(kept)
            except HetschedError:
                self.tally.failed += not self.disk.is_off
                continue
            assert outcomes == [None] * len(kept), outcomes
            self.states = self.states[-1:]
            self.tally.acknowledged += len(kept)
            self._numbers.reserved = file.reserved
            kept = []
            file.maintain(self.now)
            if is_orderly and self.rng.random() < 0.2:
                break
        file.close(self._numbers.last)


def _cut_after(rng: random.Random, fault_rate: float) -> Callable[[str], Exception | None]:
    """Return a fault: EIO at random, then no power."""
    remaining = rng.randint(1, MAX_OPERATIONS)

    def fault(kind: str) -> Exception | None:
        nonlocal remaining
        remaining -= 1
        if remaining < 0:
            return PowerLost()
        return io_error(kind) if rng.random() < fault_rate else None

    return fault


def cut_power(cuts: int, seed: int, file_format: DatabaseFormat = FORMAT) -> Tally:
    """Cut the power `cuts` times, on a new disk every CUTS_PER_DISK times."""
    rng = random.Random(seed)
    tally = Tally()
    while tally.cuts < cuts:
        life = Life(rng, file_format, tally)
        for _ in range(CUTS_PER_DISK):
            life.run_until_cut()
    return tally


@silent
def measure(scale: Scale) -> Result:
    cuts = scale.of(1_000, 10_000, 100_000)
    result = Result(
        "power_cuts",
        "Power cuts, with torn and reordered writes",
        ("journal", "cuts", "records acknowledged", "commits failed", "jobs lost", "damaged"),
    )
    full = cut_power(cuts, scale.seed)
    normal = cut_power(cuts // 10, scale.seed, NOT_SYNCED)
    for name, tally in (("as it is", full), ("with synchronous = NORMAL", normal)):
        figures = (tally.cuts, tally.acknowledged, tally.failed, tally.lost, tally.damaged)
        result.rows.append((name, *(f"{figure:,}" for figure in figures)))
        result.data.append({"journal": name, **dataclasses.asdict(tally)})
    result.bars += [
        Bar("acknowledged jobs lost", full.lost, 0, at_least=False),
        Bar("files damaged", full.damaged, 0, at_least=False),
        Bar("job numbers repeated", full.repeated, 0, at_least=False),
        Bar("lost with synchronous = NORMAL, which the test must notice", normal.lost, 1),
    ]
    return result
