"""A job's state machine that is fed with events, without processes, sockets or threads."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from hetsched.device import Chunk, ChunkTimes, DeviceInfo
from hetsched.engine.admission.resolved_job import ResolvedJob
from hetsched.engine.deadlines import DEFAULT_DEADLINES, Deadlines
from hetsched.engine.job import commands as do
from hetsched.engine.job.events import (
    Begin,
    DeadlinePassed,
    DeviceMessage,
    DevicesJoined,
    DevicesLost,
    JobEvent,
    PlanReady,
    ProcessesSettled,
    ProcessesStarted,
)
from hetsched.engine.job.job_record import JobSettings
from hetsched.engine.job.state_machine import JobStateMachine
from hetsched.errors import ErrorRecord
from hetsched.job import JobSpec
from hetsched.planner.job_planner import Assignment, JobPlan
from hetsched.plans.device_plan import DevicePlan
from hetsched.transport.device_messages import (
    Checked,
    ChunkDone,
    CommandFailed,
    Fenced,
    Filled,
    Prepared,
)
from hetsched.workload import ArraySpec

DEVICES = ("cpu0", "cpu1")
CHUNKS = 2
"""Of each device, each of one unit."""
JOB = 7
SEED = 99
X, Y = ArraySpec("x", "split", (1,), "float64"), ArraySpec("y", "out", (1,), "float64")
FACTORS = ArraySpec("f", "resident", (1,), "float64")
GOOD = {"worst": 0.1, "unit": 0, "max_error": 1e-9, "sample_error": 0.1}
TIMES = ChunkTimes(compute=(0.0, 1.0))


def info(device: str) -> DeviceInfo:
    return DeviceInfo(name=device, kind="cpu", identity="test")


def assignment(device: str, first: int, number: int) -> Assignment:
    chunks = tuple(Chunk(number + i, first + i, 1) for i in range(CHUNKS))
    return Assignment(
        device=device,
        variant="numpy",
        plan=DevicePlan(((1,),) * CHUNKS),
        chunks=chunks,
        max_chunk=1,
        slots=1,
        slot_memory=1024,
        window=1,
        predicted_seconds=2.0,
    )


def plan(devices: Sequence[str] = DEVICES) -> JobPlan:
    assignments = [assignment(d, CHUNKS * i, CHUNKS * i) for i, d in enumerate(devices)]
    return JobPlan(tuple(assignments), 2.0, ("a reason",))


class Story:
    """Feeds a state machine; `commands` are those after the last event, without timers.

    `deadline`: when DeadlinePassed is due.

    Parameters
    ----------
    generated : sequence of ArraySpec
        Inputs that devices generate.
    output : str
        Path of the output file; "": the result stays in the arena.
    """

    def __init__(
        self,
        *,
        verify: bool = False,
        generated: Sequence[ArraySpec] = (),
        output: str = "",
        measure: Mapping[str, str] | None = None,
        deadlines: Deadlines = DEFAULT_DEADLINES,
    ) -> None:
        workload: Any = SimpleNamespace(name="toy")
        files: Any = {"y": SimpleNamespace(path=output)} if output else {}
        self.job = ResolvedJob(
            workload=workload,
            reference="test:toy",
            params={},
            load=CHUNKS * len(DEVICES),
            specs=[X, *(a for a in generated if a is not X), Y],
            devices=DEVICES,
            generate=list(generated),
            outputs=files,
            measure=dict(measure or {}),
        )
        spec = JobSpec(workload="toy", params={}, verify=verify, seed=5)
        self.machine = JobStateMachine(
            JobSettings(JOB, spec, self.job, SEED, stealing=False, deadlines=deadlines)
        )
        self.now = 1000.0
        self.attempt_id = 40
        self.commands: list[do.JobCommand] = []
        self.deadline = math.inf

    @property
    def state(self) -> str:
        return type(self.machine.state).__name__

    @property
    def names(self) -> list[str]:
        """The commands after the last event, by name."""
        return [type(command).__name__ for command in self.commands]

    def feed(self, *events: JobEvent) -> Story:
        for event in events:
            self.now += 1.0
            self.commands = []
            for command in self.machine.handle(event, self.now):
                if isinstance(command, do.SetDeadline):
                    self.deadline = command.at
                else:
                    self.commands.append(command)
        return self

    def pass_time(self, seconds: float) -> Story:
        """Let time pass; each deadline on the way is an event. Keeps the commands of all."""
        end, commands = self.now + seconds, list[do.JobCommand]()
        while self.deadline <= end:
            self.now = self.deadline - 1.0  # `feed` adds one
            commands += self.feed(DeadlinePassed()).commands
        self.now, self.commands = max(self.now, end), commands
        return self

    def only(self, kind: type[Any]) -> Any:
        """The only command of a kind."""
        (command,) = [command for command in self.commands if isinstance(command, kind)]
        return command

    # ---- shortcuts to a stage; each leaves the commands of its last event

    def to_waiting(self) -> Story:
        return self.feed(Begin())

    def to_planning(self, devices: Sequence[str] = DEVICES) -> Story:
        if self.state == "New":
            self.to_waiting()
        self.attempt_id += 1
        infos = tuple(info(device) for device in devices)
        return self.feed(ProcessesSettled(self.attempt_id, infos, {}))

    def to_starting(self, devices: Sequence[str] = DEVICES) -> Story:
        return self.to_planning(devices).feed(PlanReady(plan(devices)))

    def to_preparing(self, devices: Sequence[str] = DEVICES, *, cached: bool = False) -> Story:
        infos = {device: info(device) for device in devices}
        started = ProcessesStarted(frozenset(devices), infos, cached)
        return self.to_starting(devices).feed(started)

    def to_computing(self, devices: Sequence[str] = DEVICES) -> Story:
        """Past filling, if something is filled."""
        self.to_preparing(devices).prepared(*devices)
        if self.state == "Filling":
            fills = [c.order.device for c in self.commands if isinstance(c, do.FillUnits)]
            self.filled(*fills)
        if self.state == "ReloadingResidents":
            self.prepared(*devices)
        return self

    def to_verifying(self) -> Story:
        self.to_computing()
        return self.done("cpu0", 0, 1).done("cpu1", 2, 3)

    def to_stage(self, state: str) -> Story:
        """To a stage by the name of its state."""
        reach = {
            "WaitingForProcesses": self.to_waiting,
            "Planning": self.to_planning,
            "StartingProcesses": self.to_starting,
            "Preparing": self.to_preparing,
            "Filling": lambda: self.to_preparing().prepared(*DEVICES),
            "ReloadingResidents": lambda: self.to_stage("Filling").filled(
                *(c.order.device for c in self.commands if isinstance(c, do.FillUnits))
            ),
            "Computing": self.to_computing,
            "Verifying": self.to_verifying,
            "Publishing": lambda: self.to_computing().done("cpu0", 0, 1).done("cpu1", 2, 3),
        }
        story = reach[state]()
        assert story.state == state
        return story

    # ---- messages of devices

    def message(self, device: str, kind: Any, *fields: Any, **named: Any) -> DeviceMessage:
        return DeviceMessage(device, kind(self.attempt_id, 0, *fields, **named))

    def prepared(self, *devices: str) -> Story:
        return self.feed(*(self.message(device, Prepared) for device in devices))

    def filled(self, *devices: str) -> Story:
        return self.feed(*(self.message(device, Filled) for device in devices))

    def done(self, device: str, *chunks: int) -> Story:
        return self.feed(*(self.message(device, ChunkDone, chunk, TIMES) for chunk in chunks))

    def checked(self, *devices: str, **fields: Any) -> Story:
        checked_fields = {**GOOD, **fields}
        return self.feed(*(self.message(device, Checked, **checked_fields) for device in devices))

    def fenced(self, *devices: str) -> Story:
        return self.feed(*(self.message(device, Fenced) for device in devices))

    def failed(
        self, device: str, cause: str, text: str = "broken", chunk: int | None = None
    ) -> Story:
        error = ErrorRecord(1, text)
        return self.feed(self.message(device, CommandFailed, cause, error, chunk))

    def lost(
        self,
        *devices: str,
        abandoned: Sequence[str] = (),
        culprits: Sequence[str] = (),
        counts: bool = True,
    ) -> Story:
        reason, gone = "ended by SIGKILL", frozenset(abandoned)
        return self.feed(DevicesLost(devices, reason, gone, tuple(culprits), counts))

    def joined(self, *devices: str) -> Story:
        return self.feed(DevicesJoined(devices))
