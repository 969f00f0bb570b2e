"""The state machine of an iterative job that is fed with events, without processes or memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from job_story import DEVICES, Story, X, Y, info
from msgspec.structs import replace

from hetsched.device import Chunk
from hetsched.engine.admission.declare import IterativeDeclaration
from hetsched.engine.admission.resolved_job import ResolvedJob
from hetsched.engine.deadlines import DEFAULT_DEADLINES, Deadlines
from hetsched.engine.job import commands as do
from hetsched.engine.job.events import (
    Begin,
    EpochSettled,
    PlanReady,
    ProcessesSettled,
    ProcessesStarted,
)
from hetsched.engine.job.job_record import JobSettings
from hetsched.engine.job.state_machine import JobStateMachine
from hetsched.job import JobSpec
from hetsched.partition.iterations import IterationBalance
from hetsched.planner.job_planner import Assignment, JobPlan
from hetsched.plans.device_plan import DevicePlan
from hetsched.transport.device_messages import StoredArray
from hetsched.transport.iterations.messages import (
    IterationsDone,
    IterationsStopped,
    IterationTimes,
)

ROWS, ITERATIONS = 100, 50
JOB, SEED = 7, 99


class IteratingStory(Story):
    """A job of `ROWS` rows on cpu0 and cpu1; its split changes only as `balance` says.

    `options`: fields of its JobSpec.
    """

    def __init__(
        self,
        *,
        must_converge: bool = False,
        verify: bool = False,
        inputs: dict[str, StoredArray] | None = None,
        outputs: Any = None,
        balance: Any = None,
        clock: str = "wall",
        deadlines: Deadlines = DEFAULT_DEADLINES,
        **options: Any,
    ) -> None:
        super().__init__()
        self.clock = clock
        self.balance = balance or IterationBalance(ROWS, 2, "none", names=DEVICES)
        self.job = ResolvedJob(
            workload=self.job.workload,
            reference="test:toy",
            params={},
            load=ROWS,
            specs=[X, Y],
            devices=DEVICES,
            inputs=inputs or {},
            outputs=outputs or {},
            iterative=IterativeDeclaration((), (), 1, ITERATIONS, must_converge),
        )
        spec = JobSpec(workload="toy", params={}, verify=verify, **options)
        settings = JobSettings(JOB, spec, self.job, SEED, stealing=False, deadlines=deadlines)
        self.machine = JobStateMachine(settings)

    @property
    def iterations(self) -> Any:
        return self.machine.record.iterations

    def to_iterating(
        self, devices: Sequence[str] = DEVICES, disabled: Sequence[str] = ()
    ) -> IteratingStory:
        """To the first epoch of an attempt."""
        if self.state == "New":
            self.feed(Begin())
        self.attempt_id += 1
        infos = [_with_clock(info(device), self.clock) for device in devices]
        off = frozenset(disabled)
        self.feed(ProcessesSettled(self.attempt_id, tuple(infos), {}, disabled=off))
        self.feed(PlanReady(plan(devices), self.balance))
        started = ProcessesStarted(frozenset(devices), {i.name: i for i in infos}, False)
        self.feed(started)
        self.prepared(*devices)
        if self.state == "Filling":
            self.filled(*(c.order.device for c in self.commands if isinstance(c, do.FillUnits)))
        return self

    def iterated(
        self,
        device: str,
        first: int,
        count: int = 1,
        *,
        rows: int = 50,
        seconds: float = 1.0,
        residual: float = 0.5,
    ) -> IteratingStory:
        times = (IterationTimes(seconds),) * count
        fields = (first, times, (residual,) * count, (rows,) * count)
        self.feed(self.message(device, IterationsDone, *fields))
        return self

    def stopped(
        self, *devices: str, iteration: int, reason: str, epoch: int = 1
    ) -> IteratingStory:
        for device in devices:
            fields = (epoch, iteration, reason)
            self.feed(self.message(device, IterationsStopped, *fields))
        return self

    def settled(
        self, finished: int, ended: int | None = None, saved: int | None = None
    ) -> IteratingStory:
        self.feed(EpochSettled(finished, ended, saved))
        return self

    @property
    def epoch(self) -> Any:
        """The epoch that has just been started."""
        return self.only(do.StartEpoch).epoch


def ended(reason: str = "converged", iteration: int = 9, **named: bool) -> IteratingStory:
    """A job whose method has ended after `iteration`."""
    story = IteratingStory(**named).to_iterating()
    for device in DEVICES:
        story.iterated(device, 1, iteration)
    story.stopped(*DEVICES, iteration=iteration, reason=reason)
    return story.settled(iteration, iteration)


def _with_clock(device: Any, clock: str) -> Any:
    return replace(device, clock=clock)


def plan(devices: Sequence[str]) -> JobPlan:
    rows = ROWS // len(devices)
    return JobPlan(
        tuple(
            Assignment(
                device=device,
                variant="numpy",
                plan=DevicePlan(((rows,),)),
                chunks=(Chunk(number, 0, rows),),
                max_chunk=ROWS,
                slots=1,
                slot_memory=0,
                window=1,
                predicted_seconds=None,
            )
            for number, device in enumerate(devices)
        ),
        None,
    )
