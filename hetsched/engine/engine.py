"""The engine: takes jobs, runs them one after the other, learns. Shared by daemon and Local.

Everything happens on the thread of the loop that it is given, but for what `PlannerThread` does.
"""

from __future__ import annotations

import functools
import logging
import math
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hetsched.config import Config
from hetsched.device import DeviceInfo
from hetsched.devices.probe import probe
from hetsched.engine.context import Context
from hetsched.engine.explanations import Accounts, Evidence
from hetsched.engine.job.job_run import JobRun
from hetsched.engine.planning.planner_thread import OnDone, PlannerThread, run_inline
from hetsched.engine.processes.fleet import Fleet, FleetListener
from hetsched.engine.resolve import Resolved, resolve
from hetsched.errors import Cancelled, DataError, ErrorRecord, HetschedError, TryAgain, to_record
from hetsched.job import (
    ArenaOut,
    ArenaRef,
    Failed,
    FileOut,
    FileRef,
    JobReport,
    JobSpec,
    JobState,
    Queued,
    ended,
)
from hetsched.paths import cache_dir, private_folder
from hetsched.planner.records import JobPlan
from hetsched.store.model_store import ModelStore
from hetsched.transport.arena import Arena
from hetsched.transport.device_messages import Event
from hetsched.transport.loop import Loop
from hetsched.units import parse_size

log = logging.getLogger(__name__)

Listen = Callable[[JobState], None]
FLUSH_SECONDS = 0.5
"""After a job, until models.db gets what it taught: a job in a row must not wait for the disk."""


@dataclass
class _Waiting:
    number: int
    spec: JobSpec
    job: Resolved
    listen: Listen


class Engine:
    """Runs jobs on all devices of a configuration.

    Parameters
    ----------
    config : Config
    loop : Loop
        Whose thread calls every method and hears every answer.
    arena : Arena
    models_path : Path or None
        Of models.db; None: what is learnt is forgotten at the end.

    Raises
    ------
    ConfigError, Unavailable
        The configuration asks for what isn't there; models.db is from a newer version.
    """

    def __init__(
        self, config: Config, loop: Loop, arena: Arena, *, models_path: Path | None
    ) -> None:
        self._limit = config.queue.limit
        self._arena = arena
        listener = FleetListener(self._event, self._lost, self._joined)
        self._fleet = Fleet(probe(config), loop, listener)
        private_folder(cache_dir(), "cache folder")
        store = ModelStore(models_path)
        limit = None if config.memory_limit is None else parse_size(config.memory_limit)
        self._context = Context(
            self._fleet, PlannerThread(loop), arena, store, limit, config.stealing
        )
        self._accounts = Accounts(self._fleet.info)
        self._queue: deque[_Waiting] = deque()
        self._active: JobRun | None = None
        self._numbers = 0
        self._resolving = 0
        self._found: set[str] = set()
        """Workloads that were looked for: what blocks neither for them nor for a file needn't be
        done by another thread."""
        self._loop = loop
        self._flushing = False
        self._draining: Callable[[], None] | None = None
        arena.on_discard(lambda segment: self._fleet.detach([segment]))

    def start(self) -> None:
        """Spawn the device processes; jobs may be submitted at once."""
        self._fleet.start()

    def submit(
        self,
        spec: JobSpec,
        reply: Callable[[int | ErrorRecord], None],
        listen: Listen,
    ) -> None:
        """Check a job and queue it.

        `reply` hears its number, or why it isn't taken; then `listen` hears its states, the last
        one Done or Failed. With Done, the listener takes over a reference to each result segment.
        """
        try:
            self._admit()
            held = self._hold(spec)
        except Exception as error:  # whoever asks must get an answer, be it our bug
            reply(to_record(error))
            return
        self._resolving += 1
        known, absent, limit = self._fleet.infos, dict(self._fleet.absent), self._arena.limit

        def resolved(job: Resolved | None, error: BaseException | None) -> None:
            self._resolving -= 1
            if job is None:
                for segment in held:
                    self._arena.release(segment)
                reply(to_record(error or TryAgain("no answer from the planner")))
                self._advance()
                return
            self._found.add(spec.workload)
            self._accept(spec, job, reply, self._letting_go(held, listen))

        work = functools.partial(resolve, spec, known, absent, limit)
        if spec.workload in self._found and not _names_files(spec):
            run_inline(work, resolved)
        else:
            self._context.planner_thread.submit(work, resolved)

    def cancel(self, number: int) -> None:
        """Stop a job at a chunk's edge; one that has ended already stays as it is."""
        error = Cancelled(f"job {number} was cancelled")
        for waiting in list(self._queue):
            if waiting.number == number:
                self._queue.remove(waiting)
                self._drop(waiting, error)
                return
        if self._active is not None and self._active.number == number:
            self._active.abort(error)

    def explain(self, number: int, then: OnDone) -> None:
        """``then(account, error)``: what became of a job that runs or has ended, and why.

        The error is TryAgain for one that hasn't begun, InputMissing for one that isn't known.
        """
        running = None if self._active is None else self._active.evidence()
        waiting = {one.number for one in self._queue}
        try:
            work = self._accounts.ask(number, running, waiting, self._numbers)
        except HetschedError as error:
            then(None, error)
            return
        self._context.planner_thread.submit(work, then)

    def devices(self) -> tuple[tuple[DeviceInfo, ...], dict[str, str]]:
        """What there is, and what isn't there and why."""
        return self._fleet.infos, dict(self._fleet.absent)

    def pids(self) -> dict[str, int]:
        """Device name -> process id."""
        return dict(self._fleet.pids())

    def kill(self) -> None:
        """End the device processes at once, whatever they do; from any thread."""
        self._fleet.kill()

    def drain(self, then: Callable[[], None]) -> None:
        """No new jobs; the running one ends at a chunk's edge (75); then call back."""
        self._draining = then
        error = TryAgain("the daemon is stopping; submit the job again later")
        while self._queue:
            self._drop(self._queue.popleft(), error)
        if self._active is not None:
            self._active.abort(error)
        self._advance()

    def close(self) -> None:
        """End the device processes and the planner's thread."""
        self._fleet.close()
        self._context.planner_thread.close()
        self._context.store.close()

    def _admit(self) -> None:
        if self._draining is not None:
            raise TryAgain("the daemon is stopping; submit the job again later")
        if len(self._queue) + self._resolving >= self._limit:
            raise TryAgain(
                f"the queue is full ({self._limit} jobs, queue.limit in the config);"
                " try again later"
            )

    def _hold(self, spec: JobSpec) -> list[int]:
        """Retain every segment that the job names; all or none."""
        held: list[int] = []
        try:
            for ref in _segments(spec):
                self._check(ref)
                self._arena.retain(ref.segment)
                held.append(ref.segment)
        except Exception:
            for segment in held:
                self._arena.release(segment)
            raise
        return held

    def _check(self, ref: ArenaRef) -> None:
        if not self._arena.holds(ref.segment):
            raise DataError(f"segment {ref.segment} isn't in the arena (any more)")
        try:
            size = math.prod(ref.shape) * np.dtype(ref.dtype).itemsize
        except Exception:  # a client's text: NumPy's parser raises all sorts of things
            raise DataError(f"{ref.dtype!r} is not a dtype") from None
        room = self._arena.segment(ref.segment).nbytes
        if min(ref.shape, default=1) < 0 or ref.offset < 0 or ref.offset + size > room:
            raise DataError(f"an array of {size} bytes at {ref.offset} is outside its segment")

    def _letting_go(self, held: list[int], listen: Listen) -> Listen:
        """`listen`, and the end of the job lets go of what was held for it."""

        def heard(state: JobState) -> None:
            if ended(state):
                for segment in held:
                    self._arena.release(segment)
            listen(state)

        return heard

    def _accept(
        self,
        spec: JobSpec,
        job: Resolved,
        reply: Callable[[int | ErrorRecord], None],
        listen: Listen,
    ) -> None:
        self._numbers += 1
        waiting = _Waiting(self._numbers, spec, job, listen)
        reply(waiting.number)
        if self._draining is not None:
            self._drop(waiting, TryAgain("the daemon is stopping; submit the job again later"))
            self._advance()
            return
        ahead = len(self._queue) + (self._active is not None)
        self._queue.append(waiting)
        listen(Queued(waiting.number, ahead))
        self._advance()

    def _drop(self, waiting: _Waiting, error: HetschedError) -> None:
        record = to_record(error)
        report = JobReport(
            job=waiting.number,
            state="cancelled" if isinstance(error, Cancelled) else "failed",
            workload=waiting.job.workload.name,
            load=waiting.job.load,
            error=record,
        )
        self._context.planner_thread.submit(waiting.job.close)
        failed = Failed(waiting.number, report, record)
        nothing = Evidence.of(waiting.number, waiting.job, JobPlan((), None), {})
        self._accounts.keep(nothing.ended(failed))
        waiting.listen(failed)

    def _advance(self) -> None:
        if self._active is not None:
            return
        if self._queue:
            waiting = self._queue.popleft()
            self._active = JobRun(
                waiting.number,
                waiting.spec,
                waiting.job,
                self._context,
                waiting.listen,
                functools.partial(self._ended, waiting),
            )
            self._active.begin()
        elif self._draining is not None and not self._resolving:
            then, self._draining = self._draining, lambda: None
            then()

    def _ended(self, waiting: _Waiting, state: JobState, lesson: Callable[[], None]) -> None:
        run, self._active = self._active, None
        waiting.listen(state)
        if run is not None:
            self._accounts.keep(run.evidence().ended(state))
        # In mid-job it would compete for cores with what is being measured.
        self._context.planner_thread.defer(lesson, unless=lambda: self._active is not None)
        self._advance()
        if not self._flushing:
            self._flushing = True
            self._loop.call_later(FLUSH_SECONDS, self._flush)

    def _flush(self) -> None:
        self._flushing = False
        self._context.planner_thread.submit(self._context.store.flush)

    def _event(self, device: str, event: Event) -> None:
        if self._active is not None:
            self._active.event(device, event)

    def _lost(self, devices: tuple[str, ...], reason: str) -> None:
        if self._active is not None:
            self._active.lost(devices, reason)

    def _joined(self, devices: tuple[str, ...]) -> None:
        if self._active is not None:
            self._active.joined(devices)


def _segments(spec: JobSpec) -> Iterator[ArenaRef]:
    for ref in spec.inputs.values():
        if isinstance(ref, ArenaRef):
            yield ref
    for target in spec.outputs.values():
        if isinstance(target, ArenaOut) and target.into is not None:
            yield target.into


def _names_files(spec: JobSpec) -> bool:
    places = [*spec.inputs.values(), *spec.outputs.values()]
    return any(isinstance(place, FileRef | FileOut) for place in places)
