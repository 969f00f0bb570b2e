"""Overview: the jobs that run or run next, for `hetsched top`."""

from __future__ import annotations

import heapq
from collections.abc import Iterator

import msgspec

from hetsched.daemon.commands import CollectOverview, Command
from hetsched.daemon.ledger import Ledger
from hetsched.daemon.records import JobEntry, Requester
from hetsched.job import Queued, Running
from hetsched.transport.codec import encode
from hetsched.transport.messages import MAX_FRAME, DaemonOverview, JobBrief, Overview

MAX_JOBS = 200
"""Jobs in one answer: more than any screen shows."""
MAX_BYTES = MAX_FRAME // 2
"""Bytes of all jobs in one answer; parameters may be long. The rest is for devices."""


def handle(ledger: Ledger, requester: Requester, request: Overview, now: float) -> list[Command]:
    """Have the server add devices and what they do. O(unfinished jobs)."""
    unfinished = [entry for entry in ledger.tickets.values() if entry.job and not entry.has_ended]
    running = [entry for entry in unfinished if isinstance(entry.state, Running)]
    waiting = [entry for entry in unfinished if not isinstance(entry.state, Running)]
    count = max(0, min(request.waiting, MAX_JOBS))
    first = heapq.nsmallest(count, waiting, key=_turn)
    overview = DaemonOverview(
        pid=ledger.daemon.pid,
        version=ledger.daemon.version,
        uptime_seconds=now - ledger.daemon.started,
        now=ledger.wall_clock(now),
        is_draining=ledger.is_draining,
        jobs=tuple(_that_fit([*running[:MAX_JOBS], *first])),
        running=len(running),
        waiting=len(waiting),
        ended=ledger.metrics.ended,
    )
    return [CollectOverview(requester.identity, requester.number, overview)]


def _turn(entry: JobEntry) -> tuple[bool, int, int]:
    """Return a key that sorts waiting jobs by about the order in which they will run."""
    reason = entry.state.reason if isinstance(entry.state, Queued) else ""
    return reason.startswith(("held", "after")), -entry.priority, entry.job


def _that_fit(entries: list[JobEntry]) -> Iterator[JobBrief]:
    """Yield the jobs that fit one message; parameters that are too long are omitted."""
    free_bytes = MAX_BYTES
    for entry in entries:
        brief = _brief(entry)
        size = len(encode(brief))
        if size > MAX_BYTES // 8:
            brief = msgspec.structs.replace(brief, params={})
            size = len(encode(brief))
        free_bytes -= size
        if free_bytes < 0:
            return
        yield brief


def _brief(entry: JobEntry) -> JobBrief:
    return JobBrief(
        job=entry.job,
        workload=entry.spec.workload,
        params=entry.spec.params,
        label=entry.spec.label,
        priority=entry.priority,
        state=entry.state or Queued(entry.job, 0),
        submitted_at=entry.submitted_at,
        started_at=entry.started_at,
    )
