"""Cores that really compute several jobs at once, in a random order of everything that happens.

Each job is driven by its state machine, each core by the code of a device process, without
threads: which core takes its next step, and when the engine reads an answer, is random. Processes
die, jobs are cancelled, kernels fail.
"""

from __future__ import annotations

import itertools
import random
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np
from device_toys import WIDTH, Affine, AffineParams
from random_core_plans import RandomPlans

from hetsched.device import DeviceInfo
from hetsched.device_process.attachments import Attachments, HostArrays
from hetsched.device_process.command_handler import CommandHandler
from hetsched.device_process.held_job import StepFailed
from hetsched.device_process.pipeline import ChunkFailed
from hetsched.device_process.reports.failures import command_failed
from hetsched.device_process.shared_tails import SharedTails
from hetsched.devices.cpu.device import CpuDevice
from hetsched.devices.host_arrays import ArenaArray
from hetsched.engine.admission.resolved_job import ResolvedJob
from hetsched.engine.job import commands as do
from hetsched.engine.job.events import (
    AbortRequested,
    Begin,
    DeviceMessage,
    DevicesJoined,
    DevicesLost,
    JobEvent,
    PlanReady,
    ProcessesSettled,
    ProcessesStarted,
    StageFailed,
)
from hetsched.engine.job.job_record import JobSettings
from hetsched.engine.job.state_machine import JobStateMachine
from hetsched.errors import Cancelled
from hetsched.job import JobSpec
from hetsched.transport import device_messages as messages

PROCESSES = {"cpu": ("cpu0", "cpu1", "cpu2"), "big": ("big0", "big1")}
PROCESS_OF = {core: process for process, cores in PROCESSES.items() for core in cores}
SPECS = tuple(Affine().arrays(AffineParams()))
MAX_UNITS = 24
MAX_STEPS = 20_000
MAX_TROUBLED_STEPS = 400
"""After these nothing goes wrong any more."""
SIDE = " side"
"""Suffix of the thread of a core that computes side jobs."""
NEVER = -7.0
"""What an output holds where nothing was written, and after the end of its job."""


class RunningJob:
    """A job with arrays of its own. `side`: its core, if it runs beside others."""

    def __init__(self, number: int, units: int, side: str, *, verify: bool) -> None:
        self.number, self.units, self.side = number, units, side
        self.x = number + np.arange(units * WIDTH, dtype="float64").reshape(units, WIDTH)
        self.y = np.full((units, WIDTH), NEVER)
        resolved = ResolvedJob(
            workload=Affine(),
            reference="device_toys:Affine",
            params=AffineParams(units),
            load=units,
            specs=list(SPECS),
            devices=(side,) if side else tuple(PROCESS_OF),
        )
        spec = JobSpec(workload="device_toys:Affine", params={}, verify=verify)
        settings = JobSettings(number, spec, resolved, number, stealing=number % 2 == 0)
        self.machine = JobStateMachine(settings)
        self.finish: do.FinishJob | None = None

    @property
    def attempt_id(self) -> int | None:
        latest = self.machine.record.latest
        return None if latest is None else latest.id


class JobArrays(Attachments):
    """The arrays of the jobs, by attempt."""

    def __init__(self, jobs: dict[int, RunningJob]) -> None:
        super().__init__()
        self._jobs = jobs

    def host_arrays(self, job: int, arrays: Sequence[Any], specs: Sequence[Any]) -> HostArrays:
        owner = self._jobs[job]
        x, y = SPECS
        return {"x": ArenaArray(x, owner.x)}, {"y": ArenaArray(y, owner.y)}


class RandomCores:
    """Runs jobs on the cores of `PROCESSES` until all have ended.

    Attributes
    ----------
    jobs : list of RunningJob
        The main jobs one after the other, with side jobs.
    """

    def __init__(self, seed: int, main_jobs: int = 2) -> None:
        self.random = random.Random(seed)
        self._plans = RandomPlans(self.random, PROCESSES)
        self.trouble = self.random.choice([0.0, 0.003, 0.02])
        """Probability of a death, of a cancellation, and of a variant that fails."""
        self.jobs: list[RunningJob] = []
        self.now = 0.0
        self._mains_left = main_jobs
        self._numbers, self._attempts = itertools.count(1), itertools.count(100)
        self._job_of_attempt: dict[int, RunningJob] = {}
        self._answers: list[tuple[RunningJob, Callable[[], JobEvent]]] = []
        self._inboxes: dict[str, deque[Any]] = {}
        self._outboxes: dict[str, deque[DeviceMessage]] = {name: deque() for name in PROCESSES}
        self._ready = dict.fromkeys(PROCESSES, True)
        self._handlers: dict[str, CommandHandler] = {}
        for process in PROCESSES:
            self._open(process)

    def run(self) -> None:
        for step in range(MAX_STEPS):
            if step == MAX_TROUBLED_STEPS:
                self.trouble = 0.0
            if not self._step():
                return
        raise AssertionError("the jobs come to no end")

    # ---- what happens

    def _step(self) -> bool:
        running = [job for job in self.jobs if job.finish is None]
        steps: list[Callable[[], None]] = [
            lambda thread=thread: self._work(thread)
            for thread in self._handlers
            if self._ready[PROCESS_OF[thread.removesuffix(SIDE)]] and self._has_work(thread)
        ]
        steps += [lambda p=p: self._read(p) for p, outbox in self._outboxes.items() if outbox]
        steps += [lambda p=p: self._join(p) for p, ready in self._ready.items() if not ready]
        if self._answers:
            steps.append(self._answer)
        if not any(not job.side for job in running) and self._mains_left:
            self._mains_left -= 1
            steps.append(lambda: self._submit(""))
        elif free := self._free_cores(running):
            steps.append(lambda: self._submit(self.random.choice(free)))
        if running and self._chance(self.trouble):
            job = self.random.choice(running)
            steps.append(lambda: self._post(job, AbortRequested(Cancelled("cancelled"))))
        if self._chance(self.trouble):
            steps.append(lambda: self._die(self.random.choice(list(PROCESSES))))
        if not steps:
            assert not running, [type(job.machine.state).__name__ for job in running]
            return False
        self.now += 0.001
        self.random.choice(steps)()
        return True

    def _free_cores(self, running: Sequence[RunningJob]) -> list[str]:
        """Seldom the cores without a side job, but none after the last main job."""
        if not running or not self._chance(0.1):
            return []
        return sorted(PROCESS_OF.keys() - {job.side for job in running})

    def _chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def _submit(self, side: str) -> None:
        units = self.random.randint(1, MAX_UNITS)
        verify = self._chance(0.3)
        job = RunningJob(next(self._numbers), units, side, verify=verify)
        self.jobs.append(job)
        self._post(job, Begin())

    def _answer(self) -> None:
        job, make_event = self._answers.pop(self.random.randrange(len(self._answers)))
        self._post(job, make_event())

    # ---- the engine

    def _post(self, job: RunningJob, event: JobEvent) -> None:
        events = deque([event])
        while events:
            event = events.popleft()
            for command in job.machine.handle(event, self.now):
                assert not isinstance(event, StageFailed), event
                self._execute(job, command)

    def _execute(self, job: RunningJob, command: do.JobCommand) -> None:
        match command:
            case do.WaitForProcesses():
                self._answers.append((job, lambda: self._settled(job)))
            case do.MakePlan(infos):
                names = [info.name for info in infos]
                self._answers.append((job, lambda: PlanReady(self._plans.plan(job.units, names))))
            case do.StartProcesses(assignments):
                names = [assignment.device for assignment in assignments]
                self._answers.append((job, lambda: self._started(names)))
            case do.PrepareDevice():
                self._send_prepare(job, command)
            case do.FillUnits(attempt, order):
                fill = order.array, order.first, order.count, order.seed, order.poison
                self._send(order.device, messages.Fill, attempt, *fill)
            case do.RunChunks(attempt, device, chunks, opens_tail):
                self._send(device, messages.Run, attempt, chunks, opens_tail)
            case do.CheckUnits(attempt, order, seed):
                check = order.first, order.count, order.samples, seed
                self._send(order.device, messages.Check, attempt, *check)
            case do.FenceDevice(attempt, device):
                self._send(device, messages.Fence, attempt)
            case do.FinishJob():
                self._finish(job, command)
            case do.KillDevice(device):
                raise AssertionError(f"{device} is killed: {command.reason}")

    def _send(self, device: str, kind: Any, attempt: int, *fields: Any) -> None:
        process = PROCESS_OF[device]
        if self._ready[process]:
            index = PROCESSES[process].index(device)
            self._inboxes[self._thread(device, attempt)].append(kind(attempt, index, *fields))

    def _thread(self, device: str, attempt: int) -> str:
        """Return the thread of `device` that handles commands of this attempt."""
        job = self._job_of_attempt.get(attempt)  # None: it wasn't prepared
        return device + SIDE if job is not None and job.side else device

    def _send_prepare(self, job: RunningJob, command: do.PrepareDevice) -> None:
        assignment, process = command.assignment, PROCESS_OF[command.assignment.device]
        self._job_of_attempt[command.attempt_id] = job
        if not self._ready[process]:
            return
        prepare = messages.Prepare(
            job=command.attempt_id,
            device=PROCESSES[process].index(assignment.device),
            workload="device_toys:Affine",
            params=msgspec.json.encode(AffineParams(job.units)),
            variant=assignment.variant,
            arrays=(),
            chunk=assignment.max_chunk,
            answer=command.answer,
            side=bool(job.side),
            rivals=assignment.rivals,
            tail=assignment.tail,
        )
        self._inboxes[self._thread(assignment.device, command.attempt_id)].append(prepare)

    def _settled(self, job: RunningJob) -> JobEvent:
        names = job.machine.record.failures.remaining(job.machine.record.settings.job.devices)
        ready = [name for name in names if self._ready[PROCESS_OF[name]]]
        return ProcessesSettled(next(self._attempts), tuple(map(info, ready)), {})

    def _started(self, names: Sequence[str]) -> JobEvent:
        ready = frozenset(core for core in PROCESS_OF if self._ready[PROCESS_OF[core]])
        infos = {name: info(name) for name in names}
        return ProcessesStarted(ready, infos, self._chance(0.5))

    def _finish(self, job: RunningJob, command: do.FinishJob) -> None:
        assert job.finish is None, "a job ends once"
        job.finish = command
        if command.attempt_id is not None:
            for device in command.devices:
                self._send(device, messages.Release, command.attempt_id)
        if command.error is None:
            assert sum(sum(d.chunks) for d in command.report.devices) == job.units
            np.testing.assert_array_equal(job.y, 2 * job.x + 1, f"job {job.number}")
        job.y[...] = NEVER  # its arrays belong to others now

    # ---- the cores

    def _open(self, process: str) -> None:
        """Open the cores, each with a handler for main jobs and one for side jobs."""
        tails, attachments = SharedTails(), JobArrays(self._job_of_attempt)
        for index, core in enumerate(PROCESSES[process]):
            description = info(core)
            device = CpuDevice(description)

            def send(event: Any, core: str = core) -> None:
                self._outboxes[PROCESS_OF[core]].append(DeviceMessage(core, event))

            for thread, its_device in ((core, device), (core + SIDE, device.beside())):
                self._inboxes[thread] = deque()
                self._handlers[thread] = CommandHandler(
                    index, its_device, description, attachments, send, tails
                )

    def _has_work(self, thread: str) -> bool:
        return bool(self._inboxes[thread]) or self._handlers[thread].busy_job is not None

    def _work(self, thread: str) -> None:
        """Handle a command, or advance a job by one step, as the thread of a device does."""
        handler, inbox = self._handlers[thread], self._inboxes[thread]
        job = handler.busy_job
        if inbox and (job is None or self._chance(0.5)):
            command = inbox.popleft()
            try:
                handler.handle(command)
            except Exception as error:
                self._report(thread, command.job, error)
            return
        assert job is not None
        try:
            handler.step()
        except ChunkFailed as failed:
            self._report(thread, job.number, failed.__cause__ or failed, failed.chunk.id)
        except StepFailed as failed:
            self._report(thread, job.number, failed.__cause__ or failed)

    def _report(
        self, thread: str, job: int, error: BaseException, chunk: int | None = None
    ) -> None:
        core = thread.removesuffix(SIDE)
        event = command_failed(job, PROCESSES[PROCESS_OF[core]].index(core), error, chunk)
        assert event.cause in ("kernel", "variant"), event
        self._outboxes[PROCESS_OF[core]].append(DeviceMessage(core, event))

    def _read(self, process: str) -> None:
        message = self._outboxes[process].popleft()
        attempt = getattr(message.message, "job", None)
        for job in self.jobs:
            if job.finish is None and job.attempt_id == attempt:
                self._post(job, message)

    def _die(self, process: str) -> None:
        if not self._ready[process]:
            return
        while self._outboxes[process] and self._chance(0.8):
            self._read(process)
        self._outboxes[process].clear()
        self._ready[process] = False
        for core in PROCESSES[process]:
            self._inboxes[core].clear()
            self._inboxes[core + SIDE].clear()
        lost = DevicesLost(PROCESSES[process], "ended by SIGKILL", frozenset(), (), counts=False)
        self._tell_all(lost)

    def _join(self, process: str) -> None:
        self._ready[process] = True
        self._open(process)
        self._tell_all(DevicesJoined(PROCESSES[process]))

    def _tell_all(self, event: JobEvent) -> None:
        for job in self.jobs:
            if job.finish is None:
                self._post(job, event)


def info(core: str) -> DeviceInfo:
    return DeviceInfo(name=core, kind="cpu", identity="test", process=PROCESS_OF[core])
