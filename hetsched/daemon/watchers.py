"""Clients that watch the events of several jobs, or of all. Pure.

Events are droppable: a client that doesn't read in time misses some, which it sees by the numbers.
Only the last event of a job that a client asked for isn't dropped.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from msgspec.structs import replace

from hetsched.daemon.commands import Command, SendReply
from hetsched.daemon.records import JobEntry, Requester
from hetsched.job import Done, Failed, JobState, Queued
from hetsched.transport.messages import JobEvent


@dataclass
class Watcher:
    """One request for events. `pending`: the jobs that haven't ended; None: all jobs."""

    requester: Requester
    pending: set[int] | None
    sequence: int = 0

    def event(self, state: JobState, droppable: bool) -> SendReply:
        self.sequence += 1
        return self.requester.reply(JobEvent(self.sequence, state), droppable)


class Watchers:
    """All requests for events."""

    def __init__(self) -> None:
        self._watchers: list[Watcher] = []

    def count(self, session: int) -> int:
        return sum(watcher.requester.session == session for watcher in self._watchers)

    def add(self, requester: Requester, jobs: Collection[JobEntry]) -> list[Command]:
        """Add a client that watches `jobs`, or all if there are none; send the present states."""
        pending = {entry.job for entry in jobs if not entry.has_ended} if jobs else None
        watcher = Watcher(requester, pending)
        if pending is None or pending:
            self._watchers.append(watcher)
        return [watcher.event(_brief(entry), droppable=False) for entry in jobs]

    def remove_session(self, session: int) -> None:
        """Remove the requests of a client that has ended."""
        self._watchers = [w for w in self._watchers if w.requester.session != session]

    def announce(self, entry: JobEntry) -> list[Command]:
        """Send a job's present state to those that watch it."""
        if not self._watchers:
            return []
        state = _brief(entry)
        commands: list[Command] = []
        for watcher in list(self._watchers):
            if watcher.pending is None:
                commands.append(watcher.event(state, droppable=True))
            elif entry.job in watcher.pending:
                commands.append(watcher.event(state, droppable=not entry.has_ended))
                if entry.has_ended:
                    watcher.pending.discard(entry.job)
                if not watcher.pending:
                    self._watchers.remove(watcher)
        return commands


def _brief(entry: JobEntry) -> JobState:
    """Return a job's state without the per-device part of its report."""
    state = entry.state or Queued(entry.job, 0)
    if isinstance(state, Done | Failed):
        return replace(state, report=replace(state.report, devices=()))
    return state
