"""Power cuts and faults of the disk: what the journal acknowledged is there, and nothing else.

The disk is in memory; the journal's code and SQLite are the real ones. The disk fails, once, for
a while or now and then, and the power at a random operation, also while the file is created,
checked, recovered, checkpointed, trimmed, repaired and closed; then the next daemon opens what is
left, and so on.
"""

from __future__ import annotations

import dataclasses
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from journal_model import KEPT, JournalModel, model_of, random_records
from memory_disk import MemoryDisk, PowerLost, disk_full, io_error, mounted

from hetsched.errors import CantCreate, ConfigError, HetschedError, IOFailure
from hetsched.store import journal
from hetsched.store.database import DatabaseFormat
from hetsched.store.journal import JournalFile, forget_refused
from hetsched.store.journal_records import (
    BLOCK,
    FORMAT,
    JournaledJob,
    NumberBlocks,
    NumbersReserved,
    Record,
    Write,
)

PATH = Path("/journal.db")
MAX_OPERATIONS = 200
"""Operations of the disk until a cut; a commit takes about seven."""
CHECKPOINT_PAGES = 12
"""So that a checkpoint follows every second or third commit."""
CUTS_PER_DISK = 50
NOT_SYNCED = dataclasses.replace(
    FORMAT, pragmas=FORMAT.pragmas.replace("synchronous = FULL", "synchronous = NORMAL")
)
"""The journal as it must not be: acknowledged before it is on disk."""
ERRORS: dict[str, Callable[[str], Exception | None]] = {
    "disk full": lambda kind: disk_full() if kind in ("write", "create") else None,
    "EIO": io_error,
}


class Faults:
    """Of one daemon's disk: from operation `first` to `last`, or at random; then no power."""

    def __init__(self, rng: random.Random) -> None:
        self.rng, self.operations = rng, 0
        self.cut = rng.randint(1, MAX_OPERATIONS)
        self.error = ERRORS[rng.choice(list(ERRORS))]
        self.rate = rng.choice([0.0, 0.0, 0.03])
        self.first = rng.randint(1, MAX_OPERATIONS)
        self.last = self.first + rng.choice([0, 0, 1, 5, 20])

    def __call__(self, kind: str) -> Exception | None:
        self.operations += 1
        if self.operations > self.cut:
            return PowerLost()
        if self.first <= self.operations <= self.last or self.rng.random() < self.rate:
            return self.error(kind)
        return None

    def end(self) -> None:
        self.last = self.rate = 0

    def are_over(self) -> bool:
        return self.operations >= self.last and not self.rate


class Life:
    """One disk under one daemon after the other; `states`: what may be on it."""

    def __init__(
        self, rng: random.Random, file_format: DatabaseFormat, tally: Counter[str]
    ) -> None:
        self.rng, self.format, self.tally = rng, file_format, tally
        self.disk = MemoryDisk()
        self.states = [JournalModel()]
        self.last_number, self.now = 0, 1e9

    def run_until_cut(self) -> None:
        """Start a daemon, check what it finds, write, and cut the power at some operation."""
        self.disk.fault = self.faults = Faults(self.rng)
        with mounted(self.disk) as vfs:
            if (file := self._open(vfs)) is not None:
                self._check(file)
                self._write(file)
        self.disk = self.disk.after_cut(self.rng)
        self.tally["power cuts"] += 1

    def _open(self, vfs: str) -> JournalFile | None:
        """Open the journal, once the disk works again; None without power."""
        while not self.disk.is_off:
            try:
                return JournalFile(PATH, KEPT, self.now, vfs, self.format, CHECKPOINT_PAGES)
            except ConfigError as error:
                self.faults.end()
                if "damaged" in str(error):
                    self.tally["damaged"] += 1
                    self.disk, self.states = MemoryDisk(), [JournalModel()]
                    return None
        return None

    def _check(self, file: JournalFile) -> None:
        """Compare with what was acknowledged: a commit that was cut has happened or hasn't."""
        contents = file.load(max(len(state) for state in self.states) + KEPT.keep_jobs)
        self.tally["lost"] += min(s.missing_from(model_of(contents)) for s in self.states)
        self.tally["repeated numbers"] += contents.next_number <= self.last_number
        self.states = [model_of(contents)]
        self.reservations: list[Record] = []
        self.numbers = NumberBlocks(
            contents.next_number,
            contents.next_number - 1 + BLOCK,
            lambda upto: self.reservations.append(NumbersReserved(upto)),
        )

    def _write(self, file: JournalFile) -> None:
        """Write as a daemon does: who waits for a new job is told; the rest is kept meanwhile."""
        is_orderly = self.rng.random() < 0.2
        reported, kept = self.states[0], list[Write]()
        while not self.disk.is_off and not (is_orderly and self.rng.random() < 0.05):
            self.now += 1
            records = random_records(self.rng, reported, self.numbers, self.now)
            records += self.reservations
            self.reservations.clear()
            self.last_number = self.numbers.last
            new = [
                Write((each,), self._on_done if isinstance(each, JournaledJob) else None)
                for each in records
            ]
            kept += new
            self.states.append(self.states[0].after(each for w in kept for each in w.records))
            must_succeed = self.faults.are_over()
            try:
                assert file.commit(kept) == [None] * len(kept)
            except HetschedError as error:
                if not self.disk.is_off:
                    self.tally["errors reported"] += 1
                    self.tally["stuck"] += must_succeed
                    assert error.code in (CantCreate.code, IOFailure.code), error
                reported = reported.after(each for each in records if not _is_new(each))
                kept = [w for w in kept if w.on_done is None] + forget_refused(kept)
                continue
            self.tally["records acknowledged"] += len(kept)
            self.states = self.states[-1:]
            reported, kept = self.states[0], []
            self.numbers.reserved = file.reserved
            file.maintain(self.now)
        file.close(None if kept else self.numbers.last)

    @staticmethod
    def _on_done(outcome: HetschedError | None) -> None:
        """Only marks a write that someone waits for; the outcome is what `commit` raises."""


def _is_new(record: Record) -> bool:
    return isinstance(record, JournaledJob)


def cut_power(cuts: int, file_format: DatabaseFormat = FORMAT) -> Counter[str]:
    """Cut the power `cuts` times, on a new disk every CUTS_PER_DISK times, or until one tells."""
    rng, tally = random.Random(0), Counter[str]()
    while tally["power cuts"] < cuts and not tally["lost"] + tally["damaged"]:
        life = Life(rng, file_format, tally)
        for _ in range(CUTS_PER_DISK):
            life.run_until_cut()
    return tally


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Thousands of expected failures aren't logged."""
    caplog.set_level("CRITICAL", "hetsched.store")


def test_a_power_cut_loses_nothing_that_was_acknowledged() -> None:
    tally = cut_power(2 * CUTS_PER_DISK)
    assert tally["lost"] + tally["damaged"] + tally["repeated numbers"] + tally["stuck"] == 0


@pytest.mark.stress
def test_power_cuts_and_faults_lose_nothing_that_was_acknowledged(stress: Any) -> None:
    tally = cut_power(stress.scaled(10_000))
    stress.record_all(tally)
    assert tally["lost"] + tally["damaged"] + tally["repeated numbers"] + tally["stuck"] == 0


@pytest.mark.parametrize("what", ["synchronous = NORMAL", "no repair of the log"])
def test_a_journal_that_acknowledges_too_early_is_found_out(
    monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    if what == "no repair of the log":
        monkeypatch.setattr(journal, "rewrite_wal", lambda path, vfs: False)
        tally = cut_power(400)
    else:
        tally = cut_power(200, NOT_SYNCED)
    assert tally["lost"] + tally["damaged"] > 0
