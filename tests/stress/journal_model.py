"""What the journal must hold after any sequence of records: a dict of jobs; and random records."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, replace

from hetsched.config import JournalConfig
from hetsched.errors import ErrorRecord
from hetsched.job import Done, Failed, FileRef, JobReport, JobSpec
from hetsched.store.journal_records import (
    JobForgotten,
    JobUpdate,
    JournalContents,
    JournaledJob,
    NumberBlocks,
    Record,
    Stage,
    ended_stage,
)
from hetsched.store.output_files import PreparedOutput

ENDED_STAGES = ("done", "failed", "cancelled")
KEPT = JournalConfig(keep_jobs=40)
CHECKED_ENDED = 20
"""Of ended jobs, this many of the last must be there; older ones may have been trimmed."""
MAX_OPEN = 20
OUTPUT = PreparedOutput(b"/data/.hetsched-0123456789a-1.part", b"/data/out.npy", False, 7)


@dataclass(frozen=True)
class ModelJob:
    stage: Stage = "queued"
    starts: int = 0
    priority: int = 0
    ended_at: float = 0.0

    def after(self, update: JobUpdate) -> ModelJob:
        changes = {
            "stage": ended_stage(update.state) if update.state else update.stage,
            "starts": update.starts,
            "priority": update.priority,
            "ended_at": update.ended_at,
        }
        given = {name: value for name, value in changes.items() if value is not None}
        return replace(self, **given)  # type: ignore[arg-type]


class JournalModel(dict[int, ModelJob]):
    """Jobs by number."""

    def after(self, records: Iterable[Record]) -> JournalModel:
        jobs = JournalModel(self)
        for record in records:
            if isinstance(record, JournaledJob):
                jobs[record.number] = ModelJob()
            elif isinstance(record, JobForgotten):
                jobs.pop(record.number, None)
            elif isinstance(record, JobUpdate) and record.number in jobs:
                jobs[record.number] = jobs[record.number].after(record)
        return jobs

    def open_jobs(self) -> list[int]:
        return [number for number, job in self.items() if job.stage not in ENDED_STAGES]

    def missing_from(self, stored: JournalModel) -> int:
        """Count the jobs that aren't in `stored` as they should be, or shouldn't be there."""
        ended = sorted((job.ended_at, number) for number, job in self.items() if job.ended_at)
        checked = [*self.open_jobs(), *(number for _, number in ended[-CHECKED_ENDED:])]
        wrong = sum(stored.get(number) != self[number] for number in checked)
        return wrong + len(stored.keys() - self.keys())


def model_of(contents: JournalContents) -> JournalModel:
    return JournalModel(
        (job.number, ModelJob(job.stage, job.starts, job.priority, job.ended_at or 0.0))
        for job in (*contents.open_jobs, *contents.ended_jobs)
    )


def random_records(
    rng: random.Random, model: JournalModel, numbers: NumberBlocks, now: float
) -> list[Record]:
    """Return records that a daemon might write together."""
    records: list[Record] = []
    open_jobs = model.open_jobs()
    for _ in range(rng.randint(1, 4)):
        kind = rng.randrange(8)
        if (kind < 3 and len(open_jobs) < MAX_OPEN) or not open_jobs:
            open_jobs.append(numbers.take())
            records.append(_accepted(rng, open_jobs[-1], now))
            continue
        number = rng.choice(open_jobs)
        if kind == 7 and (ended := model.keys() - set(open_jobs)):
            records.append(JobForgotten(rng.choice(sorted(ended))))
        elif kind in (4, 5):
            records.append(_ended(rng, number, now))
            open_jobs.remove(number)
        else:
            records.append(_change(rng, number, now))
    return records


def _accepted(rng: random.Random, number: int, now: float) -> JournaledJob:
    path = "/data/" + "x" * int(10 ** rng.uniform(0, 3.7))
    spec = JobSpec(workload="fft", params={"batch": "2x2"}, inputs={"x": FileRef(path)})
    ident = f"id-{number}" if rng.random() < 0.3 else ""
    return JournaledJob(number=number, spec=spec, client_id=ident, submitted_at=now, durable=True)


def _ended(rng: random.Random, number: int, now: float) -> JobUpdate:
    report = JobReport(job=number, state="done", workload="fft", load=2)
    code = rng.choice([0, 1, 130])
    state: Done | Failed = Done(number, report)
    if code:
        state = Failed(number, report, ErrorRecord(code, "x" * rng.randint(0, 500)))
    return JobUpdate(number=number, state=state, ended_at=now)


def _change(rng: random.Random, number: int, now: float) -> JobUpdate:
    return rng.choice(
        [
            JobUpdate(number=number, stage="running", starts=rng.randint(1, 3), started_at=now),
            JobUpdate(number=number, priority=rng.randint(-20, 19)),
            JobUpdate(number=number, stage="publishing", outputs=(OUTPUT,)),
        ]
    )
