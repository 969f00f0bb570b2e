"""All jobs that are known: unfinished ones, and ended ones with the results they keep."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from hetsched import errors
from hetsched.config import Config
from hetsched.job import (
    ArenaOut,
    ArenaRef,
    Condition,
    Ended,
    Failed,
    Held,
    JobReport,
    JobSpec,
    JobState,
    Outcome,
    Queued,
    Running,
    arena_refs,
    caller_outputs,
    outcome,
)
from hetsched.jobs.followers import Follower, Followers
from hetsched.machine_limits import machine_memory, resolve_size
from hetsched.store import journal_records
from hetsched.store.output_files import OutputClaim, PreparedOutput
from hetsched.transport.arena import Arena
from hetsched.transport.loop import Loop
from hetsched.units import NUMBER_LIMIT, format_bytes

if TYPE_CHECKING:
    from hetsched.store.journal import Journal  # which `Local` never has

log = logging.getLogger(__name__)

MAX_ENDED_JOBS = 1000
"""Ended jobs that are remembered; the journal remembers more."""
ENDED_BYTES = 2000
"""Of an ended job, besides its request."""
RESERVED_FRACTION = 8
"""One eighth of the queue and of the shared memory is out of reach of any single client, so that
others can still submit something."""
FETCH_SECONDS = 5.0
"""How long results are kept for clients that follow the job, though others need the memory."""

Owner = tuple[int, int]
"""Who submitted a job, for quotas: a user, and the session of processes (setsid) it came from."""
Place = int | str | tuple[str]
"""A segment; the path of a file, links resolved; or of a checkpoint, alone in a tuple."""
Submitter = Callable[["JobRecord", errors.ErrorRecord | None], None]
"""submitter(job, error): a job was accepted, and is on disk if it is durable; or refused."""


@dataclass(eq=False, slots=True)
class JobRecord:
    """One job, from its submission until it is forgotten. On the loop's thread only.

    Times are by the wall clock, seconds since the epoch; `fetch_deadline`, `keep_until`,
    `reported_at` and `turn` are monotonic.
    """

    number: int
    spec: JobSpec
    client: int = 0  # The session that submitted it, last; 0: none that still exists
    owner: Owner = (0, 0)
    key: str = ""  # Under which it can be submitted again
    submitted_at: float = 0.0
    nbytes: int = 0  # Of the encoded request
    state: JobState = field(init=False)
    started_at: float | None = None
    ended_at: float | None = None
    is_durable: bool = field(init=False)  # It can run without its client's arrays

    priority: int = field(init=False)
    is_held: bool = field(init=False)
    held: Held | None = None  # Between its iterations, the last time
    # Job that hasn't ended yet -> the outcomes it must have
    after: dict[int, set[Condition]] = field(init=False)
    # Its age: of two waiting jobs of equal priority, the smaller runs first. Its number, or for
    # further runs the largest number so far and a count.
    place: tuple[int, int] = field(init=False)
    retries: int = field(init=False)
    starts: int = 0  # Without an end, by all daemons, since one that got further on disk
    failures: int = 0  # Runs that used a retry, and why those of this daemon failed:
    failure_notes: list[str] = field(default_factory=list)
    checkpoint: str = ""  # The file from which a later run continues

    submitters: list[Submitter] = field(default_factory=list)  # Until it is accepted or refused
    ending: Ended | None = None  # Its end, before the journal has that
    # Complete output files of which the journal may know: it isn't run again
    prepared: tuple[PreparedOutput, ...] = ()

    followers: list[Follower] = field(default_factory=list)
    reported_at: float = 0.0
    # Result segment to which the job holds a reference -> bytes, until `keep_until`, or until
    # others need the memory, but then not before `fetch_deadline`
    kept_results: dict[int, int] = field(default_factory=dict)
    awaited_by: set[int] = field(default_factory=set)  # Followers that haven't fetched them yet
    fetch_deadline: float = 0.0
    keep_until: float = 0.0

    turn: float = 0.0  # When its turn came first; 0: it hasn't
    # The engine's ResolvedJob: as it was checked, and with its files open, for its run
    checked: Any = None
    opened: Any = None
    files_closed: asyncio.Future[None] | None = None  # Of its last run
    # End the job with it, once it is accepted, or its files have been opened
    stop: Exception | None = None
    runs_alone: bool = False  # It was tried beside another job
    release_segments: Callable[[], None] = lambda: None  # Of its request

    def __post_init__(self) -> None:
        self.priority, self.is_held = self.spec.priority, self.spec.hold
        self.retries = self.spec.retries
        self.after = {}
        for dependency in self.spec.after:
            self.after.setdefault(dependency.job, set()).add(dependency.condition)
        self.place = (self.number, 0)
        self.is_durable = not (arena_refs(self.spec) or self.spec.hold_every)
        self.state = Queued(self.number, 0)

    @property
    def next_spec(self) -> JobSpec:
        """The request as it is to be run now: a later run continues."""
        return replace(self.spec, resume=self.checkpoint) if self.checkpoint else self.spec

    @property
    def has_ended(self) -> bool:
        return isinstance(self.state, Ended)

    @property
    def is_ready(self) -> bool:
        """Whether only its turn is missing."""
        return not self.is_held and not self.after

    @property
    def outcome(self) -> Outcome | None:
        """How it ended, on disk or not yet; None: it hasn't."""
        end = self.state if isinstance(self.state, Ended) else self.ending
        if end is None:
            return None
        return outcome(end.error if isinstance(end, Failed) else None)

    @property
    def expires(self) -> float:
        return max(self.keep_until, self.fetch_deadline)

    def stop_awaiting(self, client: int) -> None:
        """Note that `client` has fetched the results, or has ended."""
        self.awaited_by.discard(client)
        if not self.awaited_by:
            self.fetch_deadline = 0.0


def unstarted(job: JobRecord, error: errors.ErrorRecord) -> Failed:
    return Failed(job.number, report_without_run(job, outcome(error), error=error), error)


def report_without_run(job: JobRecord, state: str, **more: Any) -> JobReport:
    """Return the report of a job of which nothing is known but its request."""
    spec = job.spec
    return JobReport(
        job=job.number, state=state, workload=spec.workload, load=0, params=spec.params, **more
    )


def _tell_submitters(job: JobRecord, error: errors.ErrorRecord | None) -> None:
    submitters, job.submitters = job.submitters, []
    for submitter in submitters:
        try:
            submitter(job, error)
        except Exception:
            log.exception("job %d: unexpected error in a callback", job.number)


def _record(job: JobRecord, end: Ended | None = None) -> journal_records.JournaledJob:
    return journal_records.JournaledJob(
        number=job.number,
        spec=job.spec,
        client_id=job.key,
        submitted_at=job.submitted_at,
        durable=job.is_durable,
        priority=job.priority,
        held=job.is_held,
        failures=job.failures,
        started_at=job.started_at,
        ended_at=job.ended_at,
        state=end,
    )


def share_of(total: int) -> int:
    """Return what one client may have of something that all clients share."""
    return total - total // RESERVED_FRACTION


class JobTable:
    """Jobs by number and by key, and the steps of a job that others hear of.

    On the loop's thread only.
    """

    def __init__(
        self, config: Config, loop: Loop, arena: Arena, journal: Journal | None = None
    ) -> None:
        self.config = config
        if journal is None:
            self.numbers = journal_records.NumberBlocks(1, NUMBER_LIMIT - 1)
            self.followers = Followers(loop, interval=0.0)  # its caller hears every state
        else:
            self.numbers, self.followers = journal.numbers, Followers(loop)
        results = resolve_size(config.arena.results, machine_memory(), "arena.results")
        self.results = KeptResults(arena, loop, min(results, arena.limit))
        self.on_ended: Callable[[JobRecord, Ended], None] = lambda job, state: None
        self.on_refused: Callable[[int], None] = lambda code: None  # With the exit code
        # Takes complete output files that won't get their names
        self.discard: Callable[[tuple[PreparedOutput, ...]], object] = lambda outputs: None
        self.uses = JobUses()
        self.is_stopping = False  # Jobs that stop with this daemon continue in the next one
        self._arena, self._journal = arena, journal
        self.jobs: dict[int, JobRecord] = {}  # Remembered ones; new ones once they are accepted
        self.unfinished: dict[int, JobRecord] = {}  # Perhaps not accepted yet
        self._keys: dict[str, JobRecord] = {}
        self._counts: Counter[Owner] = Counter()
        self._unfinished_bytes = 0
        self._ended: dict[int, JobRecord] = {}
        self._ended_bytes = 0

    def job(self, number: int) -> JobRecord:
        job = self.jobs.get(number)
        if job is None:
            newest = max(self.jobs, default=None)
            hint = "there are no jobs yet" if newest is None else f"the newest is {newest}"
            raise errors.InputMissing(f"no job {number}; {hint} (`hetsched status` lists them)")
        return job

    def with_key(self, key: str) -> JobRecord | None:
        """Return the job that was submitted with this key, or as this id."""
        return self._keys.get(key)

    def check_quota(self, owner: Owner) -> None:
        most = self.config.queue.per_client or share_of(self.config.queue.limit)
        if self._counts[owner] >= most:
            raise errors.TryAgain(
                f"this client already has {most} unfinished jobs, which is the limit"
                " (queue.per_client in the config); try again when some have ended"
            )
        nbytes, limit = self._unfinished_bytes, self.config.queue.parameters
        if nbytes >= limit:
            raise errors.TryAgain(
                f"the parameters of all unfinished jobs take {format_bytes(nbytes)}; the"
                f" limit is {format_bytes(limit)} (queue.parameters in the config);"
                " try again when some have ended"
            )

    def add(self, job: JobRecord) -> None:
        self.unfinished[job.number] = job
        self._counts[job.owner] += 1
        self._unfinished_bytes += job.nbytes
        if job.key:
            self._keys[job.key] = job

    def add_ended(self, job: JobRecord) -> list[JobRecord]:
        """Add a job that has ended; return old ones to forget, whose results nobody awaits."""
        self._remove_unfinished(job)
        self.jobs[job.number] = self._ended[job.number] = job
        if job.key:
            self._keys[job.key] = job
        self._ended_bytes += job.nbytes + ENDED_BYTES
        forgotten: list[JobRecord] = []
        now, limit = time.monotonic(), self.config.limits.ended_jobs
        for old in list(self._ended.values()):
            if len(self._ended) <= MAX_ENDED_JOBS and self._ended_bytes <= limit:
                break
            if old is not job and not (old.kept_results and now < old.fetch_deadline):
                self.forget(old)
                forgotten.append(old)
        return forgotten

    def forget(self, job: JobRecord) -> None:
        self._remove_unfinished(job)
        self.jobs.pop(job.number, None)
        if self._ended.pop(job.number, None) is not None:
            self._ended_bytes -= job.nbytes + ENDED_BYTES
        if self._keys.get(job.key) is job:
            del self._keys[job.key]

    def _remove_unfinished(self, job: JobRecord) -> None:
        if self.unfinished.pop(job.number, None) is None:
            return
        self._unfinished_bytes -= job.nbytes
        self._counts[job.owner] -= 1
        if not self._counts[job.owner]:
            del self._counts[job.owner]

    # ---- what is on disk before clients hear of it

    def is_written(self, job: JobRecord) -> bool:
        """Whether the journal has a job before it ends."""
        return job.is_durable and self._journal is not None

    async def accept(self, job: JobRecord) -> None:
        """Confirm a new job, a durable one once it is on disk. Raises the journal's error."""
        if self.is_written(job):
            await self._write(_record(job))
        job.reported_at = time.monotonic()
        self.jobs[job.number] = job
        _tell_submitters(job, None)

    def refuse(self, job: JobRecord, error: errors.ErrorRecord) -> None:
        if job.checked is None:  # else its number may be on disk
            self.numbers.give_back(job.number)
        self.on_refused(error.code)
        self.forget(job)
        _tell_submitters(job, error)

    def change(self, job: JobRecord, state: JobState) -> None:
        is_start = isinstance(state, Running) and not isinstance(job.state, Running)
        if is_start and job.started_at is None:
            job.started_at = time.time()
        if is_start:
            self._count_start(job, 1)
        elif isinstance(state, Queued) and isinstance(job.state, Running):
            self._count_start(job, -1)  # this one has ended in order; there will be another one
        self.followers.change(job, state)

    def _count_start(self, job: JobRecord, change: int) -> None:
        """Count the starts of a durable job at once: one that ends each daemon must fail."""
        if self._journal is not None and job.is_durable:
            job.starts += change
            start = journal_records.JobUpdate(
                number=job.number,
                stage="running",
                starts=job.starts,
                failures=job.failures,
                started_at=time.time(),
            )
            self._journal.write((start,), urgent=True)

    def rewrite(self, job: JobRecord, then: journal_records.OnWritten) -> None:
        """Write a waiting job's priority and hold, then call back: with the error, if any."""
        change = journal_records.JobUpdate(
            number=job.number, priority=job.priority, held=job.is_held
        )
        self._write_anyway(change, then)

    async def publish(self, job: JobRecord, outputs: tuple[PreparedOutput, ...]) -> None:
        """Note the files that a durable job is about to name. Raises the journal's error."""
        job.prepared = outputs
        await self._write(
            journal_records.JobUpdate(number=job.number, stage="publishing", outputs=outputs)
        )

    async def _write(
        self, record: journal_records.JournaledJob | journal_records.JobUpdate
    ) -> None:
        """Wait until a record is on disk. Raises the journal's error."""
        assert self._journal is not None, "without a journal nothing is written"
        written = asyncio.get_running_loop().create_future()
        self._journal.write((record,), written.set_result)
        if (error := await written) is not None:
            raise error

    def _write_anyway(
        self, record: journal_records.JobUpdate, then: journal_records.OnWritten
    ) -> None:
        """Write a record, and call back; after an error the journal keeps it until it can."""
        journal = self._journal
        assert journal is not None, "without a journal nothing is written"

        def written(error: errors.HetschedError | None) -> None:
            if error is not None:
                journal.write((record,))
            then(error)

        journal.write((record,), written)

    def report_end(self, job: JobRecord, state: Ended) -> None:
        """Report the end of a job, of a durable one once it is on disk; take over its results."""
        if self._journal is None:
            self._end(job, state)
        elif not job.is_durable:
            self._end(job, state)
            self._journal.write((_record(job, state),))
        elif (
            self.is_stopping
            and isinstance(state, Failed)
            and state.error.code == errors.TryAgain.code
        ):
            # It continues in the next daemon, which finishes a publication.
            if isinstance(job.state, Running) and not job.prepared:
                self._count_start(job, -1)
        else:
            job.ending = state
            record = journal_records.JobUpdate(
                number=job.number, state=state, ended_at=time.time()
            )
            # Reported in any case: clients must not wait for a full disk.
            self._write_anyway(record, lambda error: self._end(job, state))

    def _end(self, job: JobRecord, state: Ended) -> None:
        """Report the end of a job, and keep its results for a while."""
        now = time.monotonic()
        job.state, job.ending, job.ended_at = state, None, time.time()
        job.checked = job.opened = None
        job.awaited_by = {follower.client for follower in job.followers}
        if self._journal is not None:  # else the caller takes the results in `followers.end`
            job.fetch_deadline = now + FETCH_SECONDS if job.awaited_by else 0.0
            job.keep_until = now + self.config.arena.results_for
        self.followers.end(job)
        if job.prepared and isinstance(state, Failed):
            self.discard(job.prepared)
        callers = caller_outputs(job.spec)
        for ref in state.results.values():
            if ref.segment in callers or job.expires <= now:  # the caller has its own reference
                self._arena.release(ref.segment)
            else:
                self.results.keep(job, ref.segment)
        for forgotten in self.add_ended(job):
            self.results.release(forgotten)
        self.on_ended(job, state)


class KeptResults:
    """Results of ended jobs in shared memory, in the order in which they expire; O(1) each."""

    def __init__(self, arena: Arena, loop: Loop, max_bytes: int) -> None:
        self._arena, self._loop = arena, loop
        self._max_bytes = max_bytes
        self.nbytes = 0
        self.on_expired: Callable[[], None] = lambda: None
        self._jobs: dict[int, JobRecord] = {}
        self._by_segment: dict[int, JobRecord] = {}
        # Result in free memory -> its job, and how often that memory had been used
        self._spare: dict[int, tuple[JobRecord, int]] = {}
        self._is_timer_set = False

    def keep(self, job: JobRecord, segment: int) -> None:
        """Take over a reference to a result of a job that expires after all before it."""
        job.kept_results[segment] = nbytes = self._arena.segment(segment).nbytes
        self._jobs[job.number] = self._by_segment[segment] = job
        self.nbytes += nbytes
        self.make_room(self.nbytes - self._max_bytes)
        if not self._is_timer_set:
            self._watch_expiry()

    def job_keeping(self, segment: int) -> JobRecord | None:
        return self._by_segment.get(segment)

    def release(self, job: JobRecord) -> None:
        for segment in list(job.kept_results):
            self._release(job, segment)
        job.keep_until = job.fetch_deadline = 0.0

    def spare(self, job: JobRecord, segment: int) -> None:
        """Let others have the memory of a result, which can be fetched until they use it."""
        uses = self._arena.segment(segment).uses
        self._release(job, segment)
        self._spare[segment] = job, uses

    def forget_spare(self, segment: int) -> None:
        self._spare.pop(segment, None)

    def keeps(self, segment: int) -> bool:
        if segment in self._by_segment:
            return True
        job, uses = self._spare.pop(segment, (None, 0))
        if job is None or time.monotonic() >= job.expires:
            return False
        if not self._arena.take_back(segment, uses):
            return False
        self.keep(job, segment)
        return True

    def make_room(self, nbytes: int, in_use: Collection[int] = ()) -> None:
        """Release `nbytes` of the oldest results, none that is awaited.

        Segments `in_use` don't count: to release them frees nothing.
        """
        if nbytes <= 0:
            return
        now = time.monotonic()
        for job in list(self._jobs.values()):
            sizes = job.kept_results.items()
            freed = sum(size for segment, size in sizes if segment not in in_use)
            if freed and now >= job.fetch_deadline:
                self.release(job)
                nbytes -= freed
                if nbytes <= 0:
                    return

    def stop_awaiting(self, client: int) -> None:
        """Note that `client` has ended."""
        for job in self._jobs.values():
            job.stop_awaiting(client)

    def _release(self, job: JobRecord, segment: int) -> None:
        self.nbytes -= job.kept_results.pop(segment)
        del self._by_segment[segment]
        if not job.kept_results:
            del self._jobs[job.number]
        self._arena.release(segment)

    def _watch_expiry(self) -> None:
        first = next(iter(self._jobs.values()), None)
        if first is not None:
            self._is_timer_set = True
            self._loop.call_later(max(0.0, first.expires - time.monotonic()), self._expire)

    def _expire(self) -> None:
        """Release what has expired, except behind a job that is still awaited."""
        self._is_timer_set = False
        now = time.monotonic()
        for job in list(self._jobs.values()):
            if now < job.expires:
                break
            self.release(job)
        self.on_expired()
        self._watch_expiry()


# ---- what unfinished jobs read and write


@dataclass
class _Users:
    """The jobs that use one place; one that reads and writes it counts as a writer."""

    writers: dict[int, OutputClaim | None] = field(default_factory=dict)  # In their order
    readers: set[int] = field(default_factory=set)


class JobUses:
    """The uses of all unfinished jobs. Changed on the loop's thread only."""

    def __init__(self) -> None:
        self._users: dict[Place, _Users] = {}

    def add(self, job: JobRecord) -> None:
        for place, claim in _written(job):
            self._users.setdefault(place, _Users()).writers[job.number] = claim
        for place in _read(job):
            users = self._users.setdefault(place, _Users())
            if job.number not in users.writers:
                users.readers.add(job.number)

    def remove(self, job: JobRecord) -> None:
        for place in (*(place for place, _ in _written(job)), *_read(job)):
            if (users := self._users.get(place)) is not None:
                users.writers.pop(job.number, None)
                users.readers.discard(job.number)
                if not users.writers and not users.readers:
                    del self._users[place]

    def may_overtake(self, job: JobRecord) -> bool:
        """Return whether no other job writes what it uses, or uses what it writes."""
        written = [self._users[place] for place, _ in _written(job)]
        if any(len(users.writers) > 1 or users.readers for users in written):
            return False
        return not any(self._users[place].writers.keys() - {job.number} for place in _read(job))

    def promise(self, path: str) -> tuple[int, OutputClaim] | None:
        """Return the last job that will write this file, and what. From any thread."""
        users = self._users.get(path, _Users())
        claims = [(job, claim) for job, claim in list(users.writers.items()) if claim is not None]
        return claims[-1] if claims else None

    def check_checkpoint(self, job: JobRecord, path: str) -> None:
        others = set(self._users.get((path,), _Users()).writers)
        others -= {dependency.job for dependency in job.spec.after}
        if others:
            raise errors.UsageError(
                f"{job.spec.checkpoint}: job {min(others)} writes its checkpoints there; give"
                " another name, or run this job after that one"
            )


def _written(job: JobRecord) -> Iterator[tuple[Place, OutputClaim | None]]:
    for out in job.spec.outputs.values():
        if isinstance(out, ArenaOut) and out.into is not None:
            yield out.into.segment, None
    for claim in job.checked.claims:
        yield claim.path, claim
    if job.checked.checkpoint:
        yield (job.checked.checkpoint,), None


def _read(job: JobRecord) -> Iterator[Place]:
    for ref in job.spec.inputs.values():
        if isinstance(ref, ArenaRef):
            yield ref.segment
    yield from job.checked.input_paths
