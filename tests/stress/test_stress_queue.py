"""Random requests, kills and restarts of a real daemon, compared with a dict of what must hold.

The model knows what each job was asked to do, and which ends that allows. A divergence is an
AssertionError with hypothesis's shortest history.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    precondition,
    rule,
    run_state_machine_as_test,
)
from served import serving

from hetsched.errors import Cancelled, HetschedError, JobFailed
from hetsched.job import Done, Failed, JobState, Queued

pytestmark = pytest.mark.stress
END_SECONDS = 60.0
KILL_ODDS = 20
"""A kill is drawn in one of so many steps that may be one."""
MAX_STARTS = 3
"""Starts without progress after which the daemon fails a job."""
KINDS: dict[str, dict[str, Any]] = {
    "quick": {"units": 2},
    "slow": {"units": 4, "milliseconds": 10},
    "failing": {"units": 2, "fault": "error"},
}
LENGTH = 100

anything = st.integers(0, 1 << 20)
priorities = st.integers(-20, 19)


@dataclass
class ModelJob:
    """What the model knows of a job; `end`: its exit code, once seen."""

    number: int
    kind: str
    is_held: bool
    may_be_cancelled: bool = False
    kills: int = 0
    end: int | None = None

    def check(self, state: JobState) -> None:
        """Assert that the model allows `state`."""
        code = exit_code(state)
        if self.end is not None:
            assert code == self.end, (self, state)
        elif code is not None:
            assert code in self.allowed_ends(), (self, state)
            self.end = code
        elif self.is_held:
            assert isinstance(state, Queued), (self, state)

    def allowed_ends(self) -> set[int]:
        codes = {Cancelled.code} if self.may_be_cancelled else set()
        if not self.is_held:
            codes.add(JobFailed.code if self.kind == "failing" else 0)
            if self.kills >= MAX_STARTS:
                codes.add(JobFailed.code)
        return codes


def exit_code(state: JobState) -> int | None:
    """Return that of an ended job; None for others."""
    if isinstance(state, Failed):
        return state.error.code
    return 0 if isinstance(state, Done) else None


class DaemonMachine(RuleBasedStateMachine):
    """One history: a daemon, a client, and the model of all jobs submitted."""

    steps = kills = 0

    def __init__(self) -> None:
        super().__init__()
        self.stack = contextlib.ExitStack()
        self.daemon = self.stack.enter_context(serving())
        self.client = self.daemon.client(reconnect=0)
        self.jobs: list[ModelJob] = []

    def job(self, index: int) -> ModelJob:
        type(self).steps += 1
        return self.jobs[index % len(self.jobs)]

    def submitted(self, number: int, kind: str, **options: Any) -> int:
        job = self.client.submit("toys:Toy", id=f"job-{number}", **KINDS[kind], **options)
        assert job.durability == "durable"
        return job.id

    @rule(kind=st.sampled_from(sorted(KINDS)), held=st.booleans(), priority=priorities)
    def submit(self, kind: str, held: bool, priority: int) -> None:
        number = self.submitted(len(self.jobs), kind, hold=held, priority=priority)
        assert all(number > job.number for job in self.jobs), (number, self.jobs)
        self.jobs.append(ModelJob(number, kind, held))

    @precondition(lambda self: self.jobs)
    @rule(index=anything)
    def show(self, index: int) -> None:
        self.look_at(self.job(index))

    @precondition(lambda self: self.jobs)
    @rule(index=anything)
    def cancel(self, index: int) -> None:
        job = self.job(index)
        job.may_be_cancelled = True
        self.client.cancel(job.number)

    @precondition(lambda self: self.jobs)
    @rule(index=anything, held=st.booleans())
    def hold_or_release(self, index: int, held: bool) -> None:
        job = self.job(index)
        with contextlib.suppress(HetschedError):  # it doesn't wait any more
            state = (self.client.hold if held else self.client.release)(job.number).state
            job.is_held = held and isinstance(state, Queued)
            job.check(state)

    @precondition(lambda self: self.jobs)
    @rule(index=anything, priority=priorities)
    def prioritize(self, index: int, priority: int) -> None:
        with contextlib.suppress(HetschedError):
            self.client.prioritize(self.job(index).number, priority)

    @precondition(lambda self: self.jobs)
    @rule(index=anything)
    def wait(self, index: int) -> None:
        self.await_end(self.job(index))

    @rule(dice=st.integers(0, KILL_ODDS - 1))
    def kill_and_restart(self, dice: int) -> None:
        if dice != KILL_ODDS - 1:  # not 0: hypothesis begins with a history of zeros
            return
        type(self).kills += 1
        self.daemon.kill()
        self.client.close()
        for job in self.jobs:
            job.kills += job.end is None
        self.daemon.start()
        self.client = self.daemon.client(reconnect=0)

    def teardown(self) -> None:
        """Let every job end as the model says."""
        with self.stack, self.client:
            for job in self.jobs:
                if job.is_held and job.end is None:
                    job.is_held = False
                    with contextlib.suppress(HetschedError):
                        self.client.release(job.number)
            for job in self.jobs:
                self.await_end(job)

    def look_at(self, job: ModelJob) -> None:
        job.check(self.client.show(job.number))

    def await_end(self, job: ModelJob) -> None:
        deadline = time.monotonic() + END_SECONDS
        self.look_at(job)
        while job.end is None and not job.is_held:
            assert time.monotonic() < deadline, f"{job} hasn't ended after {END_SECONDS:g} s"
            time.sleep(0.002)
            self.look_at(job)


def test_every_job_ends_as_its_requests_allow(stress: Any) -> None:
    histories = stress.scaled(20)
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        DaemonMachine,
        settings=settings(
            max_examples=histories,
            stateful_step_count=LENGTH,
            deadline=None,
            database=None,
            phases=(Phase.generate, Phase.shrink),
            suppress_health_check=list(HealthCheck),
        ),
    )
    for what in ("steps", "kills"):
        stress.record(what, getattr(DaemonMachine, what))
    stress.record("histories", histories)
