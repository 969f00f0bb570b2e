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
from hetsched.iterations import home, saved_state
from hetsched.iterations.home import Part
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

    `arrays`: all, whole, by their names in `Prepare`. Raises UsageError if the device can't take
    part in iterative jobs, or lacks the variant; DeviceOutOfMemory.
    """

    def __init__(self, device: Device, job: DeviceJob, arrays: Mapping[str, np.ndarray]) -> None:
        workload, params, info = job.workload, job.params, device.describe()
        assert isinstance(workload, Iterative)
        if not isinstance(device, IteratingDevice):
            raise errors.UsageError(
                f"{info.name} can't compute iterative jobs such as {workload.name}"
            )
        self.is_virtual = info.clock == "virtual"  # Waiting and combining take no time
        self.workload, self.params = workload, params
        self.load = workload.load(params)
        self.home = home.Home(workload, params, arrays)
        self.executor = device.prepare_iterations(IterativeJob(job, self.home))
        self.reductions = {reduction.name: reduction for reduction in workload.reductions(params)}
        self.partials = {name: arrays[home.PARTIALS + name] for name in self.reductions}
        spin = SPIN_SECONDS if self.executor.has_own_core else 0.0
        control = arrays[CONTROL]
        self.control = IterationControl(control, spin)
        self.saved = {
            name.removeprefix(saved_state.SAVED): array
            for name, array in arrays.items()
            if name.startswith(saved_state.SAVED)
        }
        self.arrays = arrays

    def save(self, iteration: int, rows: Rows) -> None:
        for state, kept in saved_state.saved_rows(
            self.workload, self.params, self.arrays, self.saved, iteration, rows
        ):
            kept[...] = state

    def restore(self, iteration: int, rows: Rows) -> None:
        saved_state.restore_rows(
            self.workload, self.params, self.arrays, self.saved, iteration, rows
        )


class SaveSchedule:
    """When to save. `total`: iterations of the job; None: unknown, only those before count."""

    def __init__(self, total: int | None) -> None:
        self._total = total
        self._last: int | None = None
        self._save_seconds = 0.0
        self._seconds, self._iterations = 0.0, 0

    def add(self, seconds: float) -> None:
        self._seconds += seconds
        self._iterations += 1

    def saved(self, iteration: int, seconds: float) -> None:
        self._last, self._save_seconds = iteration, seconds

    def is_due(self, iteration: int) -> bool:
        work = iteration if self._total is None else max(iteration, self._total)
        longest = 1 + int(MAX_REPEATED * work)
        if self._last is None:
            return longest > 1  # else rows would be saved each time or not at all
        interval = longest
        if self._seconds:
            seconds = self._seconds / self._iterations
            interval = max(2, min(longest, math.ceil(self._save_seconds / seconds / MAX_TIME)))
        return iteration - self._last >= interval


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
        self._values = Values()  # For kernels
        self._partials: dict[tuple[str, int], dict[str, np.ndarray]] = {}  # That kernels fill
        self._slots: Sequence[int] = ()  # With rows, in the order of their rows
        self._records: list[device_messages.IterationRecord] = []  # Not sent yet
        self._extends_record = False  # The next iteration belongs to the last record
        self._is_split_new = True  # The next iteration is no measure of the later ones
        self._began = self._reported = 0.0
        self._stages = {part: home.stages_of(run.workload, run.params, part) for part in Part}
        self._rows = Rows(0, 0, run.load)
        self._proposal = 0
        self._complete = self._finished = command.first - 1
        is_fixed = run.workload.has_fixed_length(run.params)
        self._schedule = SaveSchedule(command.last if is_fixed else None)
        self._is_deferring = False
        self._seconds: dict[str, float] = defaultdict(float)  # Of the present iteration's phases
        self._move_seconds = self._save_seconds = 0.0  # Since then; part of the next one
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
            self._flush()
            raise
        if reason not in ("converged", "limit"):
            self._come_home()
        self._flush()
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
            self._restore_values()
            home.mirror_borders(
                run.workload.state(run.params), run.arrays, self._complete, self._rows
            )
            yield from self._meet()
        for iteration in range(max(command.first, 1), (command.hold or command.last) + 1):
            proposal = 0
            if iteration > command.first:
                decision = run.control.decision(iteration - 1)
                if decision.pause:
                    return "paused"
                if decision.report:
                    self._flush()
                if decision.save:
                    yield from self._save()
                proposal = decision.proposal
            if command.paced:
                self._flush()
                while not run.control.wait_until_allowed(iteration):
                    yield
                proposal = run.control.proposed
            if proposal > self._proposal:
                yield from self._follow(proposal)
            yield from self._iterate(iteration)
            if self._is_converged:
                break
        if command.hold and not self._is_converged:
            return "paused"
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
        self._save_values(self._reductions_of(Part.START))
        self._end_iteration(0)
        yield from self._meet()
        self._complete = 0

    def _iterate(self, iteration: int) -> Iterator[None]:
        run = self._run
        self._seconds.clear()
        self._seconds |= {"transfer": self._move_seconds, "save": self._save_seconds}
        self._move_seconds = self._save_seconds = 0.0
        self._values = Values(self._values.now, self._values.now)
        stages = self._stages[Part.ITERATION]
        for number, stage in enumerate(stages, start=1):
            yield from self._compute(Part.ITERATION, stage, iteration, iteration)
            if number == len(stages):
                self._end_iteration(iteration)
            yield from self._meet()
            self._combine(stage, iteration)
        self._complete = iteration
        began = time.monotonic()
        residual = run.workload.residual(run.params, self._values)
        is_infinite = math.isinf(residual)
        if not is_infinite:
            self._is_converged = run.workload.converged(run.params, self._values)
        self._seconds["converge"] += time.monotonic() - began
        seconds = IterationSeconds(**self._seconds)
        self._schedule.add(seconds.total - seconds.save)
        if run.is_virtual:
            seconds = IterationSeconds(seconds.compute, seconds.transfer)
        self._record(iteration, seconds, residual)
        if is_infinite:
            raise errors.DataError(f"iteration {iteration} diverges")

    def _finish(self) -> Iterator[None]:
        """Run the finish stages; their partials must not replace those of the last iteration."""
        iteration = self._complete
        self._come_home()
        self._run.control.end(self._slot, iteration)
        self._values = Values(self._values.now, self._values.now)
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
        self._flush()  # the engine may wait for the residual
        self._come_home()
        yield from self._meet()
        run.save(self._complete, self._rows)
        if self._command.rank == 0:
            self._save_values(self._values.now)
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
        self._proposal = proposal
        self._adopt(self._run.control.bounds(proposal, len(self._command.slots)))
        self._extends_record, self._is_split_new = False, True
        yield from self._meet()

    def _adopt(self, bounds: Sequence[int]) -> None:
        rank, slots = self._command.rank, self._command.slots
        self._rows = Rows(bounds[rank], bounds[rank + 1], self._run.load)
        self._slots = [
            slot
            for slot, (first, stop) in zip(slots, pairwise(bounds), strict=True)
            if stop > first
        ]
        self._move_seconds += self._run.executor.adopt(self._rows, self._complete)

    # ---- a stage

    def _compute(self, part: Part, stage: Stage, iteration: int, parity: int) -> Iterator[None]:
        """Compute a stage; partials of `parity` are written. Yields if it is time."""
        if self._rows.count:
            key = stage.name, parity % 2
            if key not in self._partials:
                arrays = {name: self._run.partials[name] for name in stage.reductions}
                self._partials[key] = home.slot_of(arrays, parity, self._slot)
            seconds = self._run.executor.compute(
                part, stage, iteration, self._values, self._partials[key]
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
            now = time.monotonic()
            pause = min(
                MAX_REPORT_SECONDS, max(MIN_REPORT_SECONDS, REPORT_FRACTION * (now - self._began))
            )
            is_report_due = now - self._reported >= pause
            if is_report_due:
                self._reported = now
            control.decide(
                iteration,
                save=can_save and is_due,
                can_save=can_save,
                report=is_report_due,
            )

    def _meet(self) -> Iterator[None]:
        """Wait until all devices have arrived here."""
        control = self._run.control
        began = time.monotonic()
        count = control.arrive(self._slot)
        while not control.wait_for(self._others, count):
            yield from self._pass()
        self._seconds["wait"] += time.monotonic() - began

    def _combine(self, stage: Stage, parity: int) -> None:
        """Combine what all devices have computed in the stage.

        Partials and values of the start alternate between both parities from round to round, as
        those of iterations do: a device may still combine the values of one round while another
        one already computes the next.
        """
        if not stage.reductions:
            return
        began = time.monotonic()
        now = dict(self._values.now)
        for name in stage.reductions:
            now[name] = self._combined(name, parity, self._slots)
        self._values = Values(now, self._values.before)
        self._seconds["converge"] += time.monotonic() - began

    def _combined(self, name: str, parity: int, slots: Sequence[int]) -> np.ndarray:
        return home.combine(self._run.reductions[name], self._run.partials[name], parity, slots)

    def _pass(self) -> Iterator[None]:
        """Let the device's loop look for commands."""
        yield
        self._step_began = time.monotonic()

    # ---- values and reports

    def _reductions_of(self, part: Part) -> Iterator[str]:
        for stage in self._stages[part]:
            yield from stage.reductions

    def _save_values(self, names: Iterable[str]) -> None:
        """Store present values, which the partials of later iterations will replace."""
        for name in names:
            array = self._run.partials[name]
            array[:, home.COMBINED] = self._values.now[name]

    def _restore_values(self) -> None:
        """Take the values after the iteration before the epoch, as `Iterate.previous` says."""
        iteration, previous = self._command.first - 1, self._command.previous
        in_iteration = set(self._reductions_of(Part.ITERATION)) if iteration > 0 else set()
        now = {}
        for name in (*self._reductions_of(Part.START), *in_iteration):
            if name in in_iteration and previous:
                now[name] = self._combined(name, iteration, previous)
            else:
                array = self._run.partials[name]
                saved = array[iteration % 2, home.COMBINED]
                now[name] = np.array(saved, dtype=self._run.reductions[name].dtype)
        self._values = Values(now, now)

    def _record(self, iteration: int, seconds: IterationSeconds, residual: float) -> None:
        """Record an iteration for the next report; all devices have records of the same ones."""
        count = 1
        if self._extends_record:
            before = self._records.pop()
            count, seconds = before.count + 1, before.seconds.plus(seconds)
        self._records.append(
            device_messages.IterationRecord(iteration, count, seconds, residual, self._rows.count)
        )
        self._extends_record = not self._is_split_new and iteration >= DETAILED_ITERATIONS
        self._is_split_new = False

    def _flush(self) -> None:
        """Report the iterations recorded since the last report."""
        records, self._records, self._extends_record = tuple(self._records), [], False
        if records:
            self._send(device_messages.IterationsDone(self._command.attempt, records))
