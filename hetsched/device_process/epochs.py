"""One epoch on one device: start, iterations, finish, in step with the other devices.

A generator, so that the device's thread can look for commands between two steps of at most about
50 ms, and while the device waits for others.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from itertools import pairwise

from hetsched.device_process.iterative_run import EpochValues, IterativeRun
from hetsched.devices.iterating import StageSeconds
from hetsched.errors import DataError
from hetsched.iterations.home import Part, stages_of
from hetsched.transport.control import Aborted
from hetsched.transport.device_messages import (
    Iterate,
    IterationsDone,
    IterationsStopped,
    IterationTimes,
    StopReason,
)
from hetsched.workload import Rows, Stage

STEP_SECONDS = 0.05
"""After so long the device looks for commands."""


MIN_REPORT_SECONDS, MAX_REPORT_SECONDS = 0.05, 0.25
"""Between two reports while iterations are shorter: each takes 0.2 ms of a core that computes."""
REPORT_FRACTION = 0.05
"""Of the time of the epoch so far, between these limits."""
MAX_RECORDS = 500
"""In one message, which then fits into the socket."""
DETAILED_ITERATIONS = 1000
"""Of a job, that are reported one by one however short they are. Arbitrary."""
RECORDS_PER_REPORT = 8
"""Later ones: each record takes 0.1 ms of the engine. A reading of the balance needs few."""
SINGLE_RECORDS = 2
"""Records begun at the beginning of a split: that of its first iteration, which is no measure of
the others, and the one for them."""


class IterationReports:
    """The reports of one device in an epoch.

    Iterations share a record if their numbers divided by the record's size, a power of two, are
    equal. So records of different devices, whose sizes may differ for a while, often end together.
    """

    def __init__(
        self,
        attempt: int,
        send: Callable[[IterationsDone], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._attempt = attempt
        self._send = send
        self._clock = clock
        self._first = 0
        self._last = 0
        self._sums: list[IterationTimes] = []
        self._counts: list[int] = []
        self._residuals: list[float] = []
        self._rows: list[int] = []
        self._late = 0
        self._size = 1
        self._singles = SINGLE_RECORDS
        self._began = self._since = clock()

    def add(
        self, iteration: int, times: IterationTimes, residual: float, rows: int, late: int
    ) -> None:
        """Add a finished iteration; send all if it is time."""
        if not self._sums:
            self._first = iteration
        shares_record = iteration // self._size == (iteration - 1) // self._size
        if shares_record and self._sums and not self._singles:
            self._sums[-1] = self._sums[-1].plus(times)
            self._counts[-1] += 1
            self._residuals[-1] = residual
        else:
            self._sums.append(times)
            self._counts.append(1)
            self._residuals.append(residual)
            self._rows.append(rows)
            self._singles = max(0, self._singles - 1)
        self._last = iteration
        self._late += late
        if self._clock() - self._since >= self._interval or len(self._sums) >= MAX_RECORDS:
            self.flush()

    def begin_split(self) -> None:
        """Begin a new record: the next iteration is the first one with other rows."""
        self._singles = SINGLE_RECORDS

    def flush(self) -> None:
        """Send what hasn't been sent."""
        now, since = self._clock(), self._since
        self._since = now
        if not self._sums:
            return
        report = IterationsDone(
            self._attempt,
            self._first,
            tuple(map(IterationTimes.divided, self._sums, self._counts)),
            tuple(self._residuals),
            tuple(self._rows),
            self._late,
            tuple(self._counts),
        )
        if self._last >= DETAILED_ITERATIONS:
            mean_seconds = (now - since) / sum(self._counts)
            self._size = _record_size(self._interval / RECORDS_PER_REPORT, mean_seconds)
        self._sums, self._counts, self._residuals, self._rows = [], [], [], []
        self._late = 0
        self._send(report)

    @property
    def _interval(self) -> float:
        """Seconds between two reports."""
        seconds = REPORT_FRACTION * (self._since - self._began)
        return min(MAX_REPORT_SECONDS, max(MIN_REPORT_SECONDS, seconds))


def _record_size(seconds: float, iteration_seconds: float) -> int:
    """Return the largest power of two iterations that take at most `seconds`; at least 1."""
    iterations = int(seconds / max(iteration_seconds, 1e-9))
    return 1 << max(0, iterations.bit_length() - 1)


MAX_REPEATED = 0.02
"""Part of the work that a loss may repeat, besides one iteration."""
MAX_TIME = 0.02
"""Part of the time that saving may take."""


class SaveSchedule:
    """When to save, in one epoch.

    Parameters
    ----------
    total : int or None
        Iterations of the whole job; None: unknown, so only those before count as its work.
    """

    def __init__(self, total: int | None) -> None:
        self._total = total
        self._last: int | None = None
        self._save_seconds = 0.0
        self._iteration_seconds = 0.0
        self._iterations = 0

    def add(self, seconds: float) -> None:
        """Record an iteration, without what was saved after it."""
        self._iteration_seconds += seconds
        self._iterations += 1

    def saved(self, iteration: int, seconds: float) -> None:
        """Record that `iteration` was saved in `seconds`."""
        self._last = iteration
        self._save_seconds = seconds

    def interval(self, iteration: int) -> int:
        """Return how many iterations may follow `iteration` until the next one is saved.

        1: saving pays only every time or not at all, so rows shouldn't be held back.
        """
        work = iteration if self._total is None else max(iteration, self._total)
        longest = 1 + int(MAX_REPEATED * work)
        if self._last is None or not self._iterations or not self._iteration_seconds:
            return longest
        each = self._iteration_seconds / self._iterations
        return max(2, min(longest, math.ceil(self._save_seconds / each / MAX_TIME)))

    def is_due(self, iteration: int) -> bool:
        """Return whether to save `iteration`, which has been computed."""
        interval = self.interval(iteration)
        if self._last is None:
            return interval > 1
        return iteration - self._last >= interval


class _Phases:
    """Seconds of the present iteration."""

    def __init__(self, transfer: float = 0.0, save: float = 0.0) -> None:
        self.compute = self.wait = self.converge = 0.0
        self.transfer, self.save = transfer, save
        self.late = 0

    def add(self, seconds: StageSeconds) -> None:
        self.compute += seconds.compute
        self.transfer += seconds.transfer
        self.late += seconds.late

    def times(self, *, is_virtual: bool) -> IterationTimes:
        if is_virtual:
            return IterationTimes(self.compute, self.transfer)
        return IterationTimes(self.compute, self.transfer, self.wait, self.converge, self.save)


class EpochRunner:
    """The device's part of an epoch; see `Iterate`.

    Parameters
    ----------
    send : callable
        Sends reports to the engine.
    """

    def __init__(
        self,
        run: IterativeRun,
        command: Iterate,
        send: Callable[[IterationsDone | IterationsStopped], None],
    ) -> None:
        self._run = run
        self._command = command
        self._send = send
        self._slot = command.slots[command.rank]
        self._others = [slot for slot in command.slots if slot != self._slot]
        self._values = EpochValues(run, self._slot)
        self._reports = IterationReports(command.attempt, send)
        self._stages = {part: stages_of(run.workload, run.params, part) for part in Part}
        self._rows = Rows(0, 0, run.load)
        self._proposal = 0
        self._complete = self._finished = command.first - 1
        is_fixed = run.workload.has_fixed_length(run.params)
        self._schedule = SaveSchedule(command.last if is_fixed else None)
        self._is_deferring = False
        self._phases = _Phases()
        self._move_seconds = self._save_seconds = 0.0
        """Since the last iteration; part of the next one."""
        self._is_converged = False
        self._step_began = 0.0

    def steps(self) -> Iterator[None]:
        """Run the epoch and report how it has ended.

        Raises
        ------
        DataError
            The method can't continue or diverges.
        BaseException
            Whatever a kernel raises.
        """
        self._step_began = time.monotonic()
        reason: StopReason
        try:
            reason = yield from self._epoch()
        except Aborted:
            reason = "aborted"
        except Exception:
            self._reports.flush()
            raise
        if reason not in ("converged", "limit"):
            self._come_home()
        self._reports.flush()
        command = self._command
        self._send(IterationsStopped(command.attempt, command.epoch, self._complete, reason))

    def _epoch(self) -> Generator[None, None, StopReason]:
        command, run = self._command, self._run
        run.executor.begin()
        if run.executor.has_own_memory and run.saved:
            run.control.defer(self._slot)
        self._adopt(command.bounds)
        if command.restores:
            run.restore(self._complete, self._rows)
            run.control.come_home(self._slot, self._complete)
            yield from self._meet()
        if command.first == 0:
            yield from self._start()
        else:
            self._values.restore(command.first - 1, command.previous)
        reason: StopReason = "limit"
        for iteration in range(max(command.first, 1), command.last + 1):
            if iteration > command.first:
                decision = self._run.control.decision(iteration - 1)
                if decision.pause:
                    return "paused"
                if decision.save:
                    yield from self._save()
                proposal = decision.proposal
            else:
                proposal = 0
            if command.paced:
                yield from self._await_permission(iteration)
                proposal = self._run.control.proposed
            if proposal > self._proposal:
                yield from self._follow(proposal)
            yield from self._iterate(iteration)
            if self._is_converged:
                reason = "converged"
                break
        yield from self._finish()
        return reason

    # ---- parts of an epoch

    def _start(self) -> Iterator[None]:
        run = self._run
        if self._command.rank == 0:
            run.home.fill_borders()
        for number in range(run.workload.start_rounds(run.params)):
            for stage in self._stages[Part.START]:
                yield from self._compute(Part.START, stage, 0, number)
                yield from self._meet()
                self._combine(stage, number)
        self._values.save_start()
        self._end_iteration(0)
        yield from self._meet()
        self._complete = 0

    def _iterate(self, iteration: int) -> Iterator[None]:
        """Compute an iteration and test convergence. Raises DataError."""
        self._phases = phases = _Phases(self._move_seconds, self._save_seconds)
        self._move_seconds = self._save_seconds = 0.0
        self._values.begin_iteration()
        stages = self._stages[Part.ITERATION]
        for number, stage in enumerate(stages, start=1):
            yield from self._compute(Part.ITERATION, stage, iteration, iteration)
            if number == len(stages):
                self._end_iteration(iteration)
            yield from self._meet()
            self._combine(stage, iteration)
        self._complete = iteration
        began = time.monotonic()
        run = self._run
        residual = run.workload.residual(run.params, self._values.values)
        is_infinite = math.isinf(residual)
        if not is_infinite:
            self._is_converged = run.workload.converged(run.params, self._values.values)
        phases.converge += time.monotonic() - began
        self._schedule.add(phases.compute + phases.transfer + phases.wait + phases.converge)
        times = phases.times(is_virtual=run.executor.is_virtual)
        self._reports.add(iteration, times, residual, self._rows.count, phases.late)
        if is_infinite:
            raise DataError(f"iteration {iteration} diverges")

    def _finish(self) -> Iterator[None]:
        """Run the finish stages; their partials must not replace those of the last iteration."""
        iteration = self._complete
        self._come_home()
        self._run.control.end(self._slot, iteration)
        self._values.begin_iteration()
        for stage in self._stages[Part.FINISH]:
            yield from self._compute(Part.FINISH, stage, iteration, iteration + 1)
            yield from self._meet()
            self._combine(stage, iteration + 1)

    # ---- the loss of a device with its own memory

    def _save(self) -> Iterator[None]:
        """Save what all devices can go back to; from now on, some hold their rows back.

        Until all have saved their rows, those of the home arrays are as valid.
        """
        run, began = self._run, time.monotonic()
        self._reports.flush()  # the engine may wait for the residual
        self._come_home()
        yield from self._meet()
        run.save(self._complete, self._rows)
        if self._command.rank == 0:
            self._values.save()
        run.control.save(self._slot, self._complete)
        yield from self._meet()
        if self._command.rank == 0:
            run.control.keep(self._complete)
        if run.executor.has_own_memory:
            run.executor.defer()
            self._is_deferring = True
        self._save_seconds = time.monotonic() - began
        self._schedule.saved(self._complete, self._save_seconds)

    def _come_home(self) -> None:
        """Have the own rows in the home arrays, as of every iteration that may be continued."""
        if self._is_deferring:
            for iteration in sorted({self._complete, self._finished}):
                self._run.executor.write_back(iteration)
                self._run.control.come_home(self._slot, iteration)

    def _await_permission(self, iteration: int) -> Iterator[None]:
        self._reports.flush()
        while not self._run.control.wait_until_allowed(iteration):
            yield

    # ---- the split

    def _follow(self, proposal: int) -> Iterator[None]:
        """Adopt a proposed split, once all devices' results are in the home arrays."""
        self._proposal = proposal
        self._adopt(self._run.control.bounds(proposal, len(self._command.slots)))
        self._reports.begin_split()
        yield from self._meet()

    def _adopt(self, bounds: Sequence[int]) -> None:
        rank, slots = self._command.rank, self._command.slots
        self._rows = Rows(bounds[rank], bounds[rank + 1], self._run.load)
        self._values.slots = [
            slot
            for slot, (first, stop) in zip(slots, pairwise(bounds), strict=True)
            if stop > first
        ]
        self._move_seconds += self._run.executor.adopt(self._rows, self._complete)

    # ---- a stage

    def _compute(self, part: Part, stage: Stage, iteration: int, parity: int) -> Iterator[None]:
        """Compute a stage; partials of `parity` are written. Yields if it is time."""
        if self._rows.count:
            partials = self._values.partials(stage, parity % 2)
            seconds = self._run.executor.compute(
                part, stage, iteration, self._values.values, partials
            )
            self._phases.add(seconds)
        if time.monotonic() - self._step_began >= STEP_SECONDS:
            yield from self._pass()

    def _end_iteration(self, iteration: int) -> None:
        """Record that the device has computed all of an iteration, before it meets the others."""
        control = self._run.control
        control.finish(self._slot, iteration, is_home=not self._is_deferring)
        self._finished = iteration
        if self._command.rank == 0:
            can_save = bool(self._run.saved)
            is_due = control.defers(self._command.slots) and self._schedule.is_due(iteration)
            control.decide(iteration, save=can_save and is_due, can_save=can_save)

    def _meet(self) -> Iterator[None]:
        """Wait until all devices have arrived here."""
        control = self._run.control
        began = time.monotonic()
        count = control.arrive(self._slot)
        while not control.wait_for(self._others, count):
            yield from self._pass()
        self._phases.wait += time.monotonic() - began

    def _combine(self, stage: Stage, parity: int) -> None:
        began = time.monotonic()
        self._values.combine(stage, parity)
        self._phases.converge += time.monotonic() - began

    def _pass(self) -> Iterator[None]:
        """Let the device's thread look for commands."""
        yield
        self._step_began = time.monotonic()
