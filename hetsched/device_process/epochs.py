"""An iterative job on one device: its arrays in shared memory, and its epochs.

An epoch is a generator, so that the device's loop can look for commands between two steps of at
most about 50 ms, and while the device waits for others.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

import numpy as np

from hetsched import errors
from hetsched.devices.base import Device, DeviceJob, IteratingDevice, IterativeJob
from hetsched.iterations import saved_state
from hetsched.iterations.home import (
    PARTIALS,
    Home,
    Part,
    combine,
    combined_slot,
    slot_of,
    stages_of,
)
from hetsched.job import IterationSeconds
from hetsched.transport import device_messages
from hetsched.transport.control import CONTROL, Aborted, IterationControl
from hetsched.workload import Iterative, Rows, Stage, Values

SPIN_SECONDS = 50e-6
"""How long a core looks for the others before it sleeps: about what waking it up may take."""
STEP_SECONDS = 0.05
"""After so long the device looks for commands."""

MIN_REPORT_SECONDS, MAX_REPORT_SECONDS = 0.05, 0.25
"""Between two reports while iterations are shorter: each takes 0.2 ms of a core that computes."""
REPORT_FRACTION = 0.05
"""Of the time of the epoch so far, between these limits."""
DETAILED_ITERATIONS = 1000
"""Of a job, that have records of their own. The later ones of a report share one: each record
takes 0.1 ms of the engine. Arbitrary."""

MAX_REPEATED = 0.02
"""Part of the work that a loss may repeat, besides one iteration."""
MAX_TIME = 0.02
"""Part of the time that saving may take."""


class IterativeRun:
    """What an epoch needs of a job that is prepared on a device.

    `arrays`: all, whole, by their names in `Prepare`. Something is saved only where a device has
    its own memory. Raises UsageError if the device can't take part in iterative jobs, or lacks the
    variant; DeviceOutOfMemory.
    """

    def __init__(self, device: Device, job: DeviceJob, arrays: Mapping[str, np.ndarray]) -> None:
        workload, params, info = job.workload, job.params, device.describe()
        assert isinstance(workload, Iterative)
        if not isinstance(device, IteratingDevice):
            raise errors.UsageError(
                f"{info.name} can't compute iterative jobs such as {workload.name}"
            )
        self.is_virtual = info.clock == "virtual"
        """Times are computed: waiting and combining take none."""
        self.workload, self.params = workload, params
        self.load = workload.load(params)
        self.home = Home(workload, params, arrays)
        self.executor = device.prepare_iterations(IterativeJob(job, self.home))
        self.reductions = {reduction.name: reduction for reduction in workload.reductions(params)}
        self.partials = {name: arrays[PARTIALS + name] for name in self.reductions}
        spin = SPIN_SECONDS if self.executor.has_own_core else 0.0
        control = arrays[CONTROL]
        self.control = IterationControl(control, spin)
        self.saved = {
            name.removeprefix(saved_state.SAVED): array
            for name, array in arrays.items()
            if name.startswith(saved_state.SAVED)
        }
        self._arrays = arrays

    def save(self, iteration: int, rows: Rows) -> None:
        """Save the state of `rows` after `iteration`."""
        saved_state.save_rows(
            self.workload, self.params, self._arrays, self.saved, iteration, rows
        )

    def restore(self, iteration: int, rows: Rows) -> None:
        """Go back to the state of `rows` after `iteration`, which was saved."""
        saved_state.restore_rows(
            self.workload, self.params, self._arrays, self.saved, iteration, rows
        )


class IterationReports:
    """The reports of one device in an epoch; others of the epoch have records of the same ones."""

    def __init__(
        self, attempt: int, send: Callable[[device_messages.IterationsDone], None]
    ) -> None:
        self._attempt = attempt
        self._send = send
        self._records: list[device_messages.IterationRecord] = []
        self._is_open = False
        """The next iteration belongs to the last record."""
        self._is_first = True
        """The next iteration is the first one of a split, and no measure of the others."""

    def add(self, iteration: int, seconds: IterationSeconds, residual: float, rows: int) -> None:
        """Add a finished iteration."""
        count = 1
        if self._is_open:
            before = self._records.pop()
            count, seconds = before.count + 1, before.seconds.plus(seconds)
        self._records.append(
            device_messages.IterationRecord(iteration, count, seconds, residual, rows)
        )
        self._is_open = not self._is_first and iteration >= DETAILED_ITERATIONS
        self._is_first = False

    def begin_split(self) -> None:
        """Note that the next iteration is the first one with other rows."""
        self._is_open, self._is_first = False, True

    def flush(self) -> None:
        """Send what hasn't been sent."""
        records, self._records, self._is_open = tuple(self._records), [], False
        if records:
            self._send(device_messages.IterationsDone(self._attempt, records))


class SaveSchedule:
    """When to save, in one epoch.

    `total`: iterations of the whole job; None: unknown, so only those before count as its work.
    """

    def __init__(self, total: int | None) -> None:
        self._total = total
        self._last: int | None = None
        self._save_seconds = 0.0
        self._seconds, self._iterations = 0.0, 0

    def add(self, seconds: float) -> None:
        """Record an iteration, without what was saved after it."""
        self._seconds += seconds
        self._iterations += 1

    def saved(self, iteration: int, seconds: float) -> None:
        """Record that `iteration` was saved in `seconds`."""
        self._last, self._save_seconds = iteration, seconds

    def is_due(self, iteration: int) -> bool:
        """Return whether to save `iteration`, which has been computed."""
        work = iteration if self._total is None else max(iteration, self._total)
        longest = 1 + int(MAX_REPEATED * work)
        if self._last is None:
            return longest > 1  # else rows would be saved each time or not at all
        interval = longest
        if self._seconds:
            seconds = self._seconds / self._iterations
            interval = max(2, min(longest, math.ceil(self._save_seconds / seconds / MAX_TIME)))
        return iteration - self._last >= interval


class EpochValues:
    """Values of one device, whose slot in partials is `slot`.

    Partials and values of the start alternate between both parities from round to round, as those
    of iterations do: a device may still combine the values of one round while another one already
    computes the next.
    """

    def __init__(self, run: IterativeRun, slot: int) -> None:
        self.values = Values()  # For kernels
        self.slots: Sequence[int] = ()  # With rows, in the order of their rows
        self._run = run
        self._slot = slot
        self._own: dict[tuple[str, int], Mapping[str, np.ndarray]] = {}

    def partials(self, stage: Stage, parity: int) -> Mapping[str, np.ndarray]:
        """Return the arrays that the stage's kernel fills."""
        key = (stage.name, parity)
        if key not in self._own:
            arrays = {name: self._run.partials[name] for name in stage.reductions}
            self._own[key] = slot_of(arrays, parity, self._slot)
        return self._own[key]

    def combine(self, stage: Stage, parity: int) -> None:
        """Combine what all devices have computed in the stage."""
        if not stage.reductions:
            return
        now = dict(self.values.now)
        for name in stage.reductions:
            now[name] = self._combined(name, parity, self.slots)
        self.values = Values(now, self.values.before)

    def begin_iteration(self) -> None:
        """Make the present values those of the previous iteration."""
        self.values = Values(self.values.now, self.values.now)

    def save(self, names: Iterable[str]) -> None:
        """Store present values, which the partials of later iterations will replace."""
        for name in names:
            array = self._run.partials[name]
            array[:, combined_slot(array)] = self.values.now[name]

    def restore(self, iteration: int, previous: Sequence[int]) -> None:
        """Take the values after `iteration` from the partials of the slots `previous`.

        (): from the combined values.
        """
        in_iteration = set(self.reductions_of(Part.ITERATION)) if iteration > 0 else set()
        now = {}
        for name in dict.fromkeys((*self.reductions_of(Part.START), *in_iteration)):
            if name in in_iteration and previous:
                now[name] = self._combined(name, iteration, previous)
            else:
                array = self._run.partials[name]
                saved = array[iteration % 2, combined_slot(array)]
                now[name] = np.array(saved, dtype=self._run.reductions[name].dtype)
        self.values = Values(now, now)

    def reductions_of(self, part: Part) -> Iterable[str]:
        for stage in stages_of(self._run.workload, self._run.params, part):
            yield from stage.reductions

    def _combined(self, name: str, iteration: int, slots: Sequence[int]) -> np.ndarray:
        return combine(self._run.reductions[name], self._run.partials[name], iteration, slots)


class EpochRunner:
    """The device's part of an epoch; see `Iterate`. `send` sends reports to the engine."""

    def __init__(
        self,
        run: IterativeRun,
        command: device_messages.Iterate,
        send: Callable[[device_messages.IterationsDone | device_messages.IterationsStopped], None],
    ) -> None:
        self._run = run
        self._command = command
        self._send = send
        self._slot = command.slots[command.rank]
        self._others = [slot for slot in command.slots if slot != self._slot]
        self._values = EpochValues(run, self._slot)
        self._reports = IterationReports(command.attempt, send)
        self._began = self._reported = 0.0
        self._stages = {part: stages_of(run.workload, run.params, part) for part in Part}
        self._rows = Rows(0, 0, run.load)
        self._proposal = 0
        self._complete = self._finished = command.first - 1
        is_fixed = run.workload.has_fixed_length(run.params)
        self._schedule = SaveSchedule(command.last if is_fixed else None)
        self._is_deferring = False
        self._seconds: dict[str, float] = defaultdict(float)
        """Of each phase of the present iteration."""
        self._move_seconds = self._save_seconds = 0.0
        """Since the last iteration; part of the next one."""
        self._is_converged = False
        self._step_began = 0.0

    def steps(self) -> Iterator[None]:
        """Run the epoch and report how it has ended.

        Raises DataError if the method can't continue or diverges, and whatever a kernel raises.
        """
        self._step_began = self._began = self._reported = time.monotonic()
        reason: device_messages.StopReason
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
        self._send(
            device_messages.IterationsStopped(
                command.attempt, command.epoch, self._complete, reason
            )
        )

    def _epoch(self) -> Generator[None, None, device_messages.StopReason]:
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
            yield from self._compute_start()
        else:
            self._values.restore(command.first - 1, command.previous)
        for iteration in range(max(command.first, 1), command.last + 1):
            proposal = 0
            if iteration > command.first:
                decision = run.control.decision(iteration - 1)
                if decision.pause:
                    return "paused"
                if decision.report:
                    self._reports.flush()
                if decision.save:
                    yield from self._save()
                proposal = decision.proposal
            if command.paced:
                self._reports.flush()
                while not run.control.wait_until_allowed(iteration):
                    yield
                proposal = run.control.proposed
            if proposal > self._proposal:
                yield from self._follow(proposal)
            yield from self._iterate(iteration)
            if self._is_converged:
                break
        yield from self._finish()
        return "converged" if self._is_converged else "limit"

    # ---- parts of an epoch

    def _compute_start(self) -> Iterator[None]:
        run = self._run
        if self._command.rank == 0:
            run.home.fill_borders()
        for number in range(run.workload.start_rounds(run.params)):
            for stage in self._stages[Part.START]:
                yield from self._compute(Part.START, stage, 0, number)
                yield from self._meet()
                self._combine(stage, number)
        # By all devices: they store the same, and the start is complete when any one has died.
        self._values.save(self._values.reductions_of(Part.START))
        self._end_iteration(0)
        yield from self._meet()
        self._complete = 0

    def _iterate(self, iteration: int) -> Iterator[None]:
        """Compute an iteration and test convergence. Raises DataError."""
        run = self._run
        self._seconds.clear()
        self._seconds |= {"transfer": self._move_seconds, "save": self._save_seconds}
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
        residual = run.workload.residual(run.params, self._values.values)
        is_infinite = math.isinf(residual)
        if not is_infinite:
            self._is_converged = run.workload.converged(run.params, self._values.values)
        self._seconds["converge"] += time.monotonic() - began
        seconds = IterationSeconds(**self._seconds)
        self._schedule.add(seconds.total - seconds.save)
        if run.is_virtual:
            seconds = IterationSeconds(seconds.compute, seconds.transfer)
        self._reports.add(iteration, seconds, residual, self._rows.count)
        if is_infinite:
            raise errors.DataError(f"iteration {iteration} diverges")

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
            self._values.save(self._values.values.now)
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
            self._seconds["compute"] += seconds.compute
            self._seconds["transfer"] += seconds.transfer
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
            control.decide(
                iteration,
                save=can_save and is_due,
                can_save=can_save,
                report=self._is_report_due(time.monotonic()),
            )

    def _is_report_due(self, now: float) -> bool:
        """Return whether all devices shall report, by the clock of the first one."""
        seconds = REPORT_FRACTION * (now - self._began)
        is_due = now - self._reported >= min(MAX_REPORT_SECONDS, max(MIN_REPORT_SECONDS, seconds))
        if is_due:
            self._reported = now
        return is_due

    def _meet(self) -> Iterator[None]:
        """Wait until all devices have arrived here."""
        control = self._run.control
        began = time.monotonic()
        count = control.arrive(self._slot)
        while not control.wait_for(self._others, count):
            yield from self._pass()
        self._seconds["wait"] += time.monotonic() - began

    def _combine(self, stage: Stage, parity: int) -> None:
        began = time.monotonic()
        self._values.combine(stage, parity)
        self._seconds["converge"] += time.monotonic() - began

    def _pass(self) -> Iterator[None]:
        """Let the device's loop look for commands."""
        yield
        self._step_began = time.monotonic()
