"""What clients can ask about jobs: one method per message, called on the loop's thread."""

from __future__ import annotations

import heapq
import logging
import os
import time
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, get_args

from msgspec import structs

from hetsched import __version__, errors
from hetsched.daemon.metrics import Metrics, present_state
from hetsched.daemon.sessions import ClientSession, Sessions
from hetsched.engine.engine import Engine
from hetsched.explain import Explanation
from hetsched.explain.records import thinned
from hetsched.job import (
    Done,
    Ended,
    FileOut,
    JobSpec,
    JobState,
    Queued,
    Running,
    arena_refs,
    brief,
    caller_outputs,
    input_shapes,
    is_same_request,
    words,
)
from hetsched.jobs.followers import Follower, Watcher
from hetsched.jobs.recovery import restored
from hetsched.jobs.table import JobRecord
from hetsched.store import journal_records
from hetsched.store.journal import Journal
from hetsched.transport import messages as say
from hetsched.transport.sockets import Peer
from hetsched.units import counted, format_seconds

log = logging.getLogger(__name__)

MAX_WATCHERS = 16
"""Requests for events of one client at once."""
CANCELLED_PER_TURN = 20
"""In one turn of the loop: about 2 ms."""
PAGE = 1000
"""Jobs in one answer: about 2 ms of the loop. Smaller pages would cost more in all."""
MAX_OVERVIEW = 200
"""Jobs in an overview: more than any screen shows."""
MAX_EXPLAINED_CHUNKS = 3000
"""Largest number of chunks in an explanation's timelines: at about 200 bytes each they fit a
frame."""

Send = Callable[[bytes, say.Reply, bool], None]
"""send(route, reply, droppable)"""


@dataclass(frozen=True)
class Asker:
    """The source of a request of `nbytes`: its session, where replies go, the request's number."""

    session: ClientSession
    route: bytes
    number: int
    nbytes: int
    send: Send

    def reply(self, answer: say.Answer, droppable: bool = False) -> None:
        self.send(self.route, say.Reply(self.number, answer), droppable)

    def refuse(self, error: BaseException) -> None:
        if not isinstance(error, errors.HetschedError):
            log.error("unexpected error in a request", exc_info=error)
        self.reply(say.Refused(errors.to_record(error)))


class Requests:
    """Answers the requests of all clients. On the loop's thread only.

    `stop` begins to stop the daemon; `is_closed`: a user has drained the queue.
    """

    def __init__(self, sessions: Sessions, engine: Engine, journal: Journal) -> None:
        self.sessions, self._engine, self._journal = sessions, engine, journal
        self._table = table = engine.table
        self._arena, self._loop = engine.arena, engine.loop
        self._started = time.monotonic()
        self.metrics = Metrics(lambda: present_state(len(sessions), engine, journal))
        self.stop: Callable[[], None] = lambda: None
        self.is_closed = False
        self._stops_when_idle = False
        table.on_ended, table.on_refused = self._on_ended, self.metrics.on_refused
        engine.on_idle = self._stop_if_idle

    # ---- requests

    def on_request(
        self, route: bytes, peer: Peer, envelope: say.Envelope, nbytes: int, send: Send
    ) -> None:
        for session in self.sessions:
            # The peer is the kernel's word, so comparing tokens tells nobody anything.
            if session.peer == peer and session.token and session.token == envelope.token:
                break
        else:
            error = errors.NotPermitted("unknown token: send hello on the session socket first")
            send(route, say.Reply(envelope.number, say.Refused(errors.to_record(error))), False)
            return
        session.route = route
        asker = Asker(session, route, envelope.number, nbytes, send)
        request = envelope.request
        try:
            self.sessions.check_permission(request, peer.uid)
            BY_TYPE[type(request)](self, asker, request)
        except Exception as error:  # the client needs an answer even to our own bugs
            asker.refuse(error)

    # ---- submissions

    def submit(self, asker: Asker, request: say.Submit) -> None:
        if self._table.is_stopping:
            raise errors.TryAgain(
                "the daemon is stopping and takes no new jobs; try again when it is back"
            )
        known = self._table.with_key(request.spec.id or request.key)
        if known is not None or not request.spec.id:
            self._add_or_find(asker, request, known)
            return

        def looked_up(
            rows: list[journal_records.JournaledJob], error: errors.HetschedError | None
        ) -> None:
            try:
                if error is not None:
                    raise error
                known = self._table.with_key(request.spec.id)
                if known is None and rows:
                    if rows[0].state is None:
                        raise errors.TryAgain(
                            f"id {request.spec.id}: a job that was refused is still in the"
                            " journal; try again when that has removed it"
                        )
                    known = restored(rows[0])
                    for forgotten in self._table.add_ended(known):
                        self._table.results.release(forgotten)
                self._add_or_find(asker, request, known)
            except Exception as problem:
                asker.refuse(problem)

        # The journal may remember the id longer than the table.
        self._journal.query(
            journal_records.HistoryFilter(client_id=request.spec.id, limit=1), looked_up
        )

    def _add_or_find(self, asker: Asker, request: say.Submit, known: JobRecord | None) -> None:
        """Add a job, or answer for the known one: its client sends the request again."""

        def submitter(job: JobRecord, error: errors.ErrorRecord | None) -> None:
            if error is not None:
                asker.reply(say.Refused(error))
                return
            durability = "durable" if job.is_durable else "volatile"
            asker.reply(say.Accepted(job.number, durability))
            if request.follow and asker.session.id in self.sessions:
                self.tell_states(job, asker)

        if known is not None:
            self._check_same(asker, request.spec, known)
        # Only the client, which has the arrays, can make the lost results of such a job again
        is_lost = known is not None and isinstance(known.state, Done) and bool(known.state.lost)
        if known is None or (is_lost and not known.is_durable):
            job = self._record_of(asker, request)
            job.submitters.append(submitter)
            self._table.add(job)
            self._engine.admit(job)
        elif known.number in self._table.jobs:
            submitter(known, None)
        else:
            known.submitters.append(submitter)

    def _record_of(self, asker: Asker, request: say.Submit) -> JobRecord:
        spec, session = request.spec, asker.session
        if self.is_closed:
            raise errors.TryAgain(
                "the daemon is draining and takes no new jobs; `hetsched drain --undo` changes"
                " that"
            )
        now = time.time()
        self._table.check_quota(session.owner)
        if spec.deadline is not None and spec.deadline <= now:
            late = format_seconds(now - spec.deadline)
            raise errors.UsageError(f"deadline: it passed {late} ago; give one in the future")
        for ref in arena_refs(spec):
            if ref.segment not in session.held:
                raise errors.DataError(
                    f"segment {ref.segment} isn't this client's;"
                    " arrays come from its own empty() or submit()"
                )
        key, number = spec.id or request.key, self._table.numbers.take()
        return JobRecord(number, spec, session.id, session.owner, key, now, asker.nbytes)

    def _check_same(self, asker: Asker, spec: JobSpec, job: JobRecord) -> None:
        """Raise DataError if a request with a known id is another one; take over the job."""
        known = f"id {spec.id or job.key}: job {job.number} has this id"
        if not is_same_request(spec, job.spec):
            raise errors.DataError(f"{known}, but it is another request; choose another id")
        if job.client not in self.sessions:
            job.client = asker.session.id
        elif caller_outputs(job.spec) != caller_outputs(spec):
            raise errors.DataError(
                f"{known}, and its result goes to the array that was passed as `out` then; choose"
                " another id, or omit `out`"
            )

    def tell_states(self, job: JobRecord, asker: Asker, *, tells_present: bool = False) -> None:
        if not job.has_ended:
            self._table.followers.follow(job, Follower(asker.session.id, asker.reply))
        is_new = isinstance(job.state, Queued) and not job.state.reason
        if tells_present or not is_new:
            asker.reply(say.State(job.state))

    def retry(self, asker: Asker, request: say.Retry) -> None:
        job = self._table.job(request.job)
        if job.outcome is None:
            raise errors.UsageError(
                f"job {job.number} hasn't ended; only an ended job can be run again"
            )
        if any(ref.segment not in asker.session.held for ref in arena_refs(job.spec)):
            raise errors.InputMissing(
                f"job {job.number} used arrays of a program, which aren't kept; submit it again"
                " from there, or use files"
            )
        outputs, deadline = job.spec.outputs, job.spec.deadline
        if request.force:
            outputs = {
                name: structs.replace(output, force=True)
                if isinstance(output, FileOut)
                else output
                for name, output in outputs.items()
            }
        if deadline is not None and deadline <= time.time():
            deadline = None
        spec = structs.replace(
            job.spec,
            outputs=outputs,
            id="",
            after=(),
            hold=False,
            hold_every=0,
            priority=job.priority,
            deadline=deadline,
        )
        asker = replace(asker, nbytes=job.nbytes)
        self.submit(asker, say.Submit(spec, follow=False, key=request.key))

    # ---- one job

    def show(self, asker: Asker, request: say.Show) -> None:
        asker.reply(say.State(self._table.job(request.job).state))

    def follow(self, asker: Asker, request: say.Follow) -> None:
        job = self._table.job(request.job)
        limit = self._table.config.queue.followers
        if not job.has_ended and self._table.followers.follows[asker.session.id] >= limit:
            raise errors.TryAgain(
                f"this client already follows {counted(limit, 'job')}, which is the limit"
                " (queue.followers in the config); try again when some have ended"
            )
        self.tell_states(job, asker, tells_present=True)

    def events(self, asker: Asker, request: say.Events) -> None:
        if self._table.followers.watches(asker.session.id) >= MAX_WATCHERS:
            raise errors.TryAgain(
                f"this client already follows events {MAX_WATCHERS} times, which is the limit;"
                " use one request for several jobs"
            )
        jobs = [self._table.job(number) for number in dict.fromkeys(request.jobs)]
        self._table.followers.watch(Watcher(asker.session.id, asker.reply), jobs)

    def explain(self, asker: Asker, request: say.Explain) -> None:
        job = self._table.job(request.job)

        def explained(explanation: Explanation | None, error: BaseException | None) -> None:
            if explanation is None:
                asker.refuse(error or errors.InternalError("no answer"))
            else:
                asker.reply(say.Explained(thinned(explanation, MAX_EXPLAINED_CHUNKS)))

        self._engine.explain(job, explained)

    def cancel(self, asker: Asker, request: say.Cancel) -> None:
        """Cancel one job, or all: the newest first, so that none starts because of another."""
        if request.job is not None:
            jobs = [self._table.job(request.job)]
        else:
            jobs = sorted(self._table.unfinished.values(), key=lambda job: job.number)
        answer = say.JobNumbers(tuple(job.number for job in jobs))

        def cancel_some() -> None:
            for _ in range(min(CANCELLED_PER_TURN, len(jobs))):
                try:
                    self._engine.scheduler.cancel(jobs.pop())
                except Exception:  # the client needs an answer even to our own bugs
                    log.exception("a job can't be cancelled")
            if jobs:
                self._loop.call_soon(cancel_some)
            else:
                asker.reply(answer)

        cancel_some()

    # ---- the queue

    def change_queue(self, asker: Asker, request: say.Hold | say.Prioritize) -> None:
        """Hold, release or prioritize a job. A change is answered once it is on disk."""
        job = self._table.job(request.job)
        is_own = job.client == asker.session.id
        if job.held is not None and isinstance(request, say.Hold) and not is_own:
            raise errors.NotPermitted(
                f"job {job.number} is held between its iterations, for its own client, which alone"
                " can release it"
            )
        is_changed = self._engine.change_queue(job, request)

        def on_written(error: BaseException | None) -> None:
            if error is None:
                asker.reply(say.Changed(True, job.state))
                return
            text = (
                f"job {job.number} was changed, but that can't be written to the journal at"
                " present, see the daemon's log; it is written as soon as possible"
            )
            asker.reply(say.Refused(errors.ErrorRecord(errors.to_record(error).code, text)))

        if is_changed and job.is_durable:
            self._table.rewrite(job, on_written)
        else:
            asker.reply(say.Changed(is_changed, job.state))
        if is_changed:
            self._table.followers.report(job)
        if self._stops_when_idle:  # no other job may start now
            self._stop_if_idle()

    def clean(self, asker: Asker, request: say.Clean) -> None:
        latest = time.time() - request.older
        jobs = [
            job
            for job in self._table.jobs.values()
            if job.has_ended
            and (job.ended_at is None or job.ended_at <= latest)
            and (not request.states or set(request.states).intersection(words(job.state)))
        ]
        for job in jobs:
            self._table.forget(job)
            self._table.results.release(job)
        numbers = tuple(job.number for job in jobs)
        if numbers:
            self._journal.write(
                [journal_records.JobForgotten(number) for number in numbers], urgent=True
            )
        asker.reply(say.JobNumbers(numbers))

    def drain(self, asker: Asker, request: say.Drain) -> None:
        """Close the queue, or open it again; stop when nothing runs, or now."""
        self.is_closed = not request.undo
        self._stops_when_idle = request.stop and not request.undo
        asker.reply(say.Draining(self.is_closed, len(self._table.unfinished)))
        if self.is_closed and request.now:
            self._loop.call_soon(self.stop)
        self._stop_if_idle()

    def _stop_if_idle(self) -> None:
        def check() -> None:
            if self._stops_when_idle and self._engine.is_idle():
                self.stop()

        if self._stops_when_idle:
            self._loop.call_soon(check)

    def _on_ended(self, job: JobRecord, state: Ended) -> None:
        self.metrics.on_end(job, state)
        self.sessions.trim_if_idle()

    # ---- lists, the daemon and its devices

    def ping(self, asker: Asker, request: say.Ping) -> None:
        asker.reply(self._pong())

    def _pong(self) -> say.Pong:
        return say.Pong(os.getpid(), __version__, time.monotonic() - self._started)

    def status(self, asker: Asker, request: say.Status) -> None:
        for number in request.jobs:
            self._table.job(number)
        # Checks take time and restored jobs come in groups: numbers are only mostly in order.
        numbers = sorted(set(request.jobs) or self._table.jobs)
        if request.before is not None:
            del numbers[bisect_left(numbers, request.before) :]
        wanted = set(request.states)
        newest_first = (
            job
            for job in map(self._table.jobs.__getitem__, reversed(numbers))
            if not wanted or wanted.intersection(words(job.state))
        )
        page = list(islice(newest_first, PAGE + 1))
        queue = self._engine.queue
        lines = [
            _line(job, queue.position(job) if queue.is_waiting(job) else brief(job.state))
            for job in reversed(page[:PAGE])
        ]
        asker.reply(say.JobList(tuple(lines), has_earlier=len(page) > PAGE))

    def history(self, asker: Asker, request: say.History) -> None:
        def on_rows(
            rows: list[journal_records.JournaledJob], error: errors.HetschedError | None
        ) -> None:
            if error is not None:
                asker.refuse(error)
                return
            jobs = [
                self._table.jobs.get(row.number) or restored(row)
                for row in reversed(rows[: request.limit])
            ]
            lines = tuple(_line(job, brief(job.state)) for job in jobs)
            asker.reply(say.JobList(lines, has_earlier=len(rows) > request.limit))

        states = {"queued" if state == "held" else state for state in request.states}
        wanted = journal_records.HistoryFilter(
            stages=tuple(stage for stage in get_args(journal_records.Stage) if stage in states),
            since=request.since,
            before=request.before,
            limit=request.limit + 1,  # to see whether there are more
        )
        self._journal.query(wanted, on_rows)

    def overview(self, asker: Asker, request: say.Overview) -> None:
        """List jobs that run, then those that wait in about the order in which they will run.

        O(unfinished jobs).
        """
        table = self._table
        jobs = [job for number, job in table.unfinished.items() if number in table.jobs]
        running = [job for job in jobs if isinstance(job.state, Running)]
        first = heapq.nsmallest(
            max(0, min(request.waiting, MAX_OVERVIEW)),
            (job for job in jobs if not isinstance(job.state, Running)),
            key=lambda job: (not job.is_ready, -job.priority, job.number),
        )
        overview = say.DaemonOverview(
            daemon=self._pong(),
            now=time.time(),
            is_stopping=self._table.is_stopping,
            jobs=tuple(_line(job, job.state) for job in [*running[:MAX_OVERVIEW], *first]),
            running=len(running),
            waiting=len(jobs) - len(running),
            ended=self.metrics.ended,
            devices=self._engine.devices(),
            activities=self._engine.activities(),
            arena_used=self._arena.used,
            arena_limit=self._arena.limit,
        )
        asker.reply(overview)

    def metric_text(self, asker: Asker, request: say.Metrics) -> None:
        asker.reply(say.MetricText(self.metrics.text()))

    def devices(self, asker: Asker, request: say.Devices) -> None:
        if request.enable or request.disable:
            self._engine.switch_devices(request.enable, request.disable)
        if request.probe:
            self._engine.probe_devices(lambda: asker.reply(self._engine.devices()))
        else:
            asker.reply(self._engine.devices())


def _line(job: JobRecord, state: JobState) -> say.JobLine:
    spec = job.spec
    return say.JobLine(
        job=job.number,
        workload=spec.workload,
        params=spec.params,
        shapes=input_shapes(spec),
        state=state,
        submitted_at=job.submitted_at,
        priority=job.priority,
        label=spec.label,
        id=spec.id,
        started_at=job.started_at,
        ended_at=job.ended_at,
        after=spec.after,
        retries=spec.retries,
        timeout=spec.timeout,
        deadline=spec.deadline,
    )


BY_TYPE: dict[type, Callable[[Requests, Asker, Any], None]] = {
    say.Ping: Requests.ping,
    say.Submit: Requests.submit,
    say.Retry: Requests.retry,
    say.Show: Requests.show,
    say.Follow: Requests.follow,
    say.Events: Requests.events,
    say.Explain: Requests.explain,
    say.Cancel: Requests.cancel,
    say.Hold: Requests.change_queue,
    say.Prioritize: Requests.change_queue,
    say.Clean: Requests.clean,
    say.Drain: Requests.drain,
    say.Status: Requests.status,
    say.History: Requests.history,
    say.Overview: Requests.overview,
    say.Metrics: Requests.metric_text,
    say.Devices: Requests.devices,
}
