"""What the journal must hold after any sequence of records: a dict of jobs; and random records."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from hetsched.errors import ErrorRecord
from hetsched.job import Done, Failed, FileRef, JobReport, JobSpec
from hetsched.store.journal_records import (
    BLOCK,
    ENDED_STAGES,
    HistoryBounds,
    JobForgotten,
    JobUpdate,
    JournalContents,
    JournaledJob,
    NumberBlocks,
    NumbersReserved,
    Record,
    Stage,
    ended_stage,
)
from hetsched.store.output_files import PreparedOutput

BOUNDS = HistoryBounds(jobs=40)
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


@dataclass
class JournalModel:
    jobs: dict[int, ModelJob] = field(default_factory=dict)

    def after(self, records: list[Record]) -> JournalModel:
        """Return the model after these records."""
        jobs = dict(self.jobs)
        for record in records:
            _apply(jobs, record)
        return JournalModel(jobs)

    def open_jobs(self) -> list[int]:
        return [number for number, job in self.jobs.items() if job.stage not in ENDED_STAGES]

    def missing_from(self, contents: JournalContents) -> int:
        """Count the jobs that aren't in `contents` as they should be, or shouldn't be there."""
        stored = {
            job.number: (job.stage, job.starts, job.priority)
            for job in (*contents.open_jobs, *contents.ended_jobs)
        }
        ended = sorted((job.ended_at, number) for number, job in self.jobs.items() if job.ended_at)
        last = [number for _, number in ended[-CHECKED_ENDED:]]
        wrong = sum(
            stored.get(number)
            != (self.jobs[number].stage, self.jobs[number].starts, self.jobs[number].priority)
            for number in [*self.open_jobs(), *last]
        )
        return wrong + len(set(stored) - set(self.jobs))


def model_of(contents: JournalContents) -> JournalModel:
    jobs = (*contents.open_jobs, *contents.ended_jobs)
    return JournalModel(
        {
            job.number: ModelJob(job.stage, job.starts, job.priority, job.ended_at or 0.0)
            for job in jobs
        }
    )


def reserving(contents: JournalContents, reservations: list[Record]) -> NumberBlocks:
    """Return the numbers of a journal; what must be written for more is added to a list."""
    return NumberBlocks(
        contents.next_number,
        contents.next_number - 1 + BLOCK,
        lambda upto: reservations.append(NumbersReserved(upto)),
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
            number = numbers.take()
            # Written under its number or, if the client disconnects first, never.
            records.append(_accepted(rng, number, now))
            open_jobs.append(number)
            continue
        number = rng.choice(open_jobs)
        if kind == 7 and (ended := set(model.jobs) - set(open_jobs)):
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
    client_id = f"id-{number}" if rng.random() < 0.3 else ""
    return JournaledJob(
        number=number, spec=spec, client_id=client_id, submitted_at=now, durable=True
    )


def _ended(rng: random.Random, number: int, now: float) -> JobUpdate:
    report = JobReport(job=number, state="done", workload="fft", load=2)
    code = rng.choice([0, 1, 130])
    state: Done | Failed = Done(number, report)
    if code:
        error = ErrorRecord(code, "x" * rng.randint(0, 500))
        state = Failed(number, report, error)
    return JobUpdate(number=number, state=state, ended_at=now)


def _change(rng: random.Random, number: int, now: float) -> Record:
    return rng.choice(
        [
            JobUpdate(number=number, stage="running", starts=rng.randint(1, 3), started_at=now),
            JobUpdate(number=number, priority=rng.randint(-20, 19)),
            JobUpdate(number=number, stage="publishing", outputs=(OUTPUT,)),
        ]
    )


def _apply(jobs: dict[int, ModelJob], record: Record) -> None:
    if isinstance(record, JournaledJob):
        jobs[record.number] = ModelJob()
    elif isinstance(record, JobForgotten):
        jobs.pop(record.number, None)
    elif isinstance(record, JobUpdate) and (job := jobs.get(record.number)) is not None:
        jobs[record.number] = ModelJob(
            ended_stage(record.state) if record.state else record.stage or job.stage,
            job.starts if record.starts is None else record.starts,
            job.priority if record.priority is None else record.priority,
            record.ended_at or job.ended_at,
        )
