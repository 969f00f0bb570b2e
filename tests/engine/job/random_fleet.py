"""A fleet that answers a job's commands in random order.

At random its processes die, or fall silent until they are killed; killed ones may not die at once.

Each device handles its commands in order, as a device process does, and each process sends its
answers in order; what a process had sent before its death is read first, as the fleet does.
"""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Callable
from typing import Any

from job_story import CHUNKS, FACTORS, GOOD, TIMES, Story, X, info, plan

from hetsched.engine.job import commands as do
from hetsched.engine.job.events import (
    AbortRequested,
    Begin,
    DeadlinePassed,
    DeviceExcluded,
    DeviceMessage,
    DevicesJoined,
    DevicesLost,
    JobEvent,
    PlanFailed,
    PlanReady,
    ProcessesSettled,
    ProcessesStarted,
    Published,
    PublishFailed,
    StageFailed,
)
from hetsched.errors import Cancelled, CantCreate, DataError, ErrorRecord
from hetsched.transport.device_messages import (
    Checked,
    ChunkDone,
    CommandFailed,
    Fenced,
    Filled,
    Prepared,
)

PROCESSES = {"cpu": ("cpu0", "cpu1"), "gpu0": ("gpu0",)}
PROCESS_OF = {device: process for process, devices in PROCESSES.items() for device in devices}
MAX_TROUBLED_STEPS = 300
"""After these nothing goes wrong any more, so that every job comes to an end."""
WRITING = (do.FillUnits, do.RunChunks)


class RandomFleet:
    """Runs one job; `finish` are its FinishJob commands."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.trouble = self.random.choice([0.0, 0.02, 0.1])
        """Probability that a step, a command or a device fails."""
        self.story = Story(
            verify=self.random.random() < 0.5,
            generated=self.random.choice([[], [X], [FACTORS], [X, FACTORS]]),
            output=self.random.choice(["", "/y.npy"]),
        )
        self.story.job.devices = tuple(PROCESS_OF)
        self.ready = dict.fromkeys(PROCESSES, True)
        self.inbox: dict[str, deque[do.JobCommand]] = {device: deque() for device in PROCESS_OF}
        self.outbox: dict[str, deque[DeviceMessage]] = {process: deque() for process in PROCESSES}
        self.prepared_for: dict[str, int | None] = dict.fromkeys(PROCESS_OF)
        self.silent: set[str] = set()
        """Processes that do nothing any more."""
        self.killed: set[str] = set()
        """Processes that will die."""
        self.events: deque[JobEvent] = deque()
        self.answers: list[Callable[[], JobEvent]] = []
        """Of the planner's thread and of processes that start."""
        self.finish: list[do.FinishJob] = []
        self.attempt_id = 0
        self.lost_fences = False

    def run(self) -> None:
        """Until nothing happens any more."""
        self.post(Begin())
        step = 0
        while self.step():
            step += 1
            if step > MAX_TROUBLED_STEPS:
                self.trouble = 0.0

    def fails(self) -> bool:
        return self.random.random() < self.trouble

    # ---- the driver's part

    def post(self, event: JobEvent) -> None:
        self.events = deque([event])
        while self.events:
            for command in self.story.feed(self.events.popleft()).commands:
                if self.fails() and not isinstance(command, do.FinishJob):
                    self.lost_fences |= isinstance(command, do.FenceDevice)
                    self.events.append(StageFailed(ZeroDivisionError("by zero"), command))
                else:
                    self.execute(command)

    def execute(self, command: do.JobCommand) -> None:
        match command:
            case do.WaitForProcesses():
                self.answers.append(self.settled)
            case do.MakePlan(infos):
                self.answers.append(lambda: self.planned([info.name for info in infos]))
            case do.StartProcesses(assignments):
                devices = [assignment.device for assignment in assignments]
                self.answers.append(lambda: self.started(devices))
            case do.PublishOutputs():
                self.answers.append(self.published)
            case do.PrepareDevice(_, assignment):
                self.send(assignment.device, command)
            case do.FillUnits(_, order) | do.CheckUnits(_, order):
                self.send(order.device, command)
            case do.RunChunks(_, device) | do.FenceDevice(_, device):
                self.send(device, command)
            case do.KillDevice(device):
                self.kill(PROCESS_OF[device])
            case do.RecordFailure(device) if self.fails():
                self.events.append(DeviceExcluded(device, "it fails too often"))
            case do.FinishJob():
                self.finish.append(command)

    def send(self, device: str, command: do.JobCommand) -> None:
        if self.ready[PROCESS_OF[device]]:
            self.inbox[device].append(command)

    def settled(self) -> JobEvent:
        self.attempt_id = self.story.attempt_id = self.attempt_id + 1
        devices = [device for device, process in PROCESS_OF.items() if self.ready[process]]
        return ProcessesSettled(self.attempt_id, tuple(map(info, devices)), {})

    def planned(self, devices: list[str]) -> JobEvent:
        if self.fails():
            return PlanFailed(DataError("too big"))
        chosen = self.random.sample(devices, self.random.randint(1, len(devices)))
        self.story.job.load = CHUNKS * len(chosen)
        return PlanReady(plan(chosen))

    def started(self, devices: list[str]) -> JobEvent:
        ready = frozenset(d for d, process in PROCESS_OF.items() if self.ready[process])
        infos = {device: info(device) for device in devices}
        return ProcessesStarted(ready, infos, self.random.random() < 0.5)

    def published(self) -> JobEvent:
        return PublishFailed(CantCreate("disk full")) if self.fails() else Published()

    # ---- what happens at random

    def step(self) -> bool:
        """Let something happen; False if nothing can."""
        steps: list[Callable[[], None]] = []
        steps += [
            lambda d=d: self.work(d)
            for d, inbox in self.inbox.items()
            if inbox and PROCESS_OF[d] not in self.silent
        ]
        steps += [lambda p=p: self.die(p) for p in sorted(self.killed)]
        steps += [lambda p=p: self.read(p) for p, outbox in self.outbox.items() if outbox]
        steps += [lambda p=p: self.join(p) for p, ready in self.ready.items() if not ready]
        if self.answers:
            steps.append(lambda: self.post(self.answers.pop(0)()))
        if self.fails():
            steps.append(lambda: self.die(self.random.choice(list(PROCESSES))))
        if self.fails():
            steps.append(lambda: self.silent.add(self.random.choice(list(PROCESSES))))
        if self.fails() and self.fails():
            steps.append(lambda: self.post(AbortRequested(Cancelled("cancelled"))))
        if self.fails() or (not steps and not self.finish):
            steps.append(self.pass_time)
        if steps:
            self.random.choice(steps)()
        return bool(steps)

    def pass_time(self) -> None:
        """Let time pass until the deadline of the job."""
        if self.story.deadline == math.inf:  # it hasn't reached its devices
            return
        self.story.now = max(self.story.now, self.story.deadline)
        self.post(DeadlinePassed())

    def kill(self, process: str) -> None:
        """A killed process does nothing more, and dies sooner or later."""
        self.silent.add(process)
        if self.ready[process]:
            self.killed.add(process)

    def read(self, process: str) -> None:
        self.post(self.outbox[process].popleft())

    def die(self, process: str) -> None:
        if not self.ready[process]:
            return
        while self.outbox[process]:
            self.read(process)
        self.ready[process] = False
        self.silent.discard(process)
        self.killed.discard(process)
        for device in PROCESSES[process]:
            self.inbox[device].clear()
            self.prepared_for[device] = None
        culprits = self.random.choice([(), PROCESSES[process][:1]])
        lost = DevicesLost(PROCESSES[process], "ended by SIGKILL", frozenset(), culprits)
        self.post(lost)

    def join(self, process: str) -> None:
        self.ready[process] = True
        self.post(DevicesJoined(PROCESSES[process]))

    def work(self, device: str) -> None:
        """Let a device handle its next command."""
        command: Any = self.inbox[device].popleft()
        attempt = command.attempt_id
        if isinstance(command, do.FenceDevice):
            self.prepared_for[device] = None
            self.answer(device, Fenced(attempt, 0))
        elif self.fails():
            self.fail(device, command)
        elif isinstance(command, do.PrepareDevice):
            self.prepared_for[device] = attempt
            if command.answer:
                self.answer(device, Prepared(attempt, 0))
        elif self.prepared_for[device] == attempt:
            self.do_work(device, command)
        elif not isinstance(command, do.RunChunks):
            raise AssertionError(f"{device} got {command} unprepared")

    def do_work(self, device: str, command: Any) -> None:
        if isinstance(command, do.FillUnits):
            self.answer(device, Filled(command.attempt_id, 0))
        elif isinstance(command, do.CheckUnits):
            worst = 5.0 if self.fails() else 0.1
            self.answer(device, Checked(command.attempt_id, 0, **{**GOOD, "worst": worst}))
        else:
            first, *others = command.chunks
            self.answer(device, ChunkDone(command.attempt_id, 0, first.id, TIMES))
            if others:
                rest = do.RunChunks(command.attempt_id, device, tuple(others))
                self.inbox[device].appendleft(rest)

    def fail(self, device: str, command: Any) -> None:
        chunk = command.chunks[0].id if isinstance(command, do.RunChunks) else None
        if not isinstance(command, do.CheckUnits | do.FillUnits):
            self.prepared_for[device] = None
        cause = self.random.choice(["variant", "memory", "io", "kernel", "fault"])
        error = ErrorRecord(1, "broken")
        self.answer(device, CommandFailed(command.attempt_id, 0, cause, error, chunk))
        if cause == "fault":
            self.die(PROCESS_OF[device])

    def answer(self, device: str, message: Any) -> None:
        self.outbox[PROCESS_OF[device]].append(DeviceMessage(device, message))

    def writing(self) -> list[str]:
        """The devices that may still write to the job's arrays."""
        return [
            device
            for device, inbox in self.inbox.items()
            if self.prepared_for[device] is not None
            and any(isinstance(command, WRITING) for command in inbox)
        ]
