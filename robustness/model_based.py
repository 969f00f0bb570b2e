"""Random requests, kills and restarts of a real daemon, compared with a dict of what must hold.

The model knows what each job was asked to do, and which ends that allows. A divergence is an
AssertionError with hypothesis's shortest history.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from benchmarks.results import Bar, Result
from hetsched.errors import Cancelled, JobFailed
from hetsched.job import Done, Failed, JobSpec, JobState, Queued
from hetsched.transport.messages import (
    Accepted,
    Answer,
    Cancel,
    Changed,
    Hold,
    Prioritize,
    Request,
    Show,
    State,
    Submit,
)
from robustness.daemon import CORES, daemon
from robustness.raw_client import RawClient
from robustness.scale import Scale
from robustness.workloads import NAPS

SHOWN_HISTORIES = 5
"""After so many the steps are printed."""
END_SECONDS = 60.0
"""Within which every job that may run has ended; far more than it takes."""
PROCESSES = 3
"""They explore at once in a long run, most of which is waiting for daemons to start."""
TEST_KILL_ODDS, KILL_ODDS = 2, 20
"""A kill is drawn in one of so many steps that may be one. Arbitrary."""
MAX_STARTS = 3
"""Starts without progress after which the daemon fails a job."""
KINDS = {
    "quick": {"units": 2},
    "slow": {"units": 4, "seconds": 0.01},
    "failing": {"units": 2, "fail": True},
}

anything = st.integers(0, 1 << 20)


@dataclass
class ModelJob:
    """What the model knows of a job; `end`: its last state, once seen."""

    number: int
    spec: JobSpec
    kind: str
    is_held: bool
    may_be_cancelled: bool = False
    kills: int = 0
    end: Done | Failed | None = None

    def check(self, state: JobState) -> None:
        """Assert that the model allows `state`."""
        if self.end is not None:
            assert _outcome(state) == _outcome(self.end), (self, state)
        elif isinstance(state, Done | Failed):
            assert _outcome(state) in self.allowed_ends(), (self, state)
            self.end = state
        elif self.is_held:
            assert isinstance(state, Queued), (self, state)

    def allowed_ends(self) -> set[int]:
        """Return the exit codes that the job may end with."""
        if self.is_held:
            return {Cancelled.code} if self.may_be_cancelled else set()
        codes = {JobFailed.code if self.kind == "failing" else 0}
        if self.may_be_cancelled:
            codes.add(Cancelled.code)
        if self.kills >= MAX_STARTS:
            codes.add(JobFailed.code)
        return codes


class DaemonMachine(RuleBasedStateMachine):
    """One history: a daemon, a client, and the model of all jobs submitted."""

    steps = histories = kills = 0
    kill_odds = KILL_ODDS

    def __init__(self) -> None:
        super().__init__()
        type(self).histories += 1
        self.stack = contextlib.ExitStack()
        self.daemon = self.stack.enter_context(daemon(CORES))
        self.client = RawClient(self.daemon.folder)
        self.jobs: list[ModelJob] = []

    def ask(self, request: Request) -> Answer:
        return self.client.ask(request)

    @invariant()
    def count(self) -> None:
        """Count the steps: called after each."""
        type(self).steps += 1

    @rule(kind=st.sampled_from(sorted(KINDS)), held=st.booleans(), priority=st.integers(-20, 19))
    def submit(self, kind: str, held: bool, priority: int) -> None:
        spec = JobSpec(
            workload=NAPS,
            params=KINDS[kind],
            id=f"job-{len(self.jobs)}",
            hold=held,
            priority=priority,
        )
        answer = self.ask(Submit(spec, follow=False))
        assert isinstance(answer, Accepted) and answer.durability == "durable", answer
        assert all(answer.job > job.number for job in self.jobs), (answer, self.jobs)
        self.jobs.append(ModelJob(answer.job, spec, kind, held))

    @precondition(lambda self: self.jobs)
    @rule(index=anything)
    def submit_again(self, index: int) -> None:
        job = self.job(index)
        answer = self.ask(Submit(job.spec, follow=False))
        assert isinstance(answer, Accepted) and answer.job == job.number, (job, answer)

    @precondition(lambda self: self.jobs)
    @rule(index=anything)
    def show(self, index: int) -> None:
        self.look_at(self.job(index))

    @precondition(lambda self: self.jobs)
    @rule(index=anything)
    def cancel(self, index: int) -> None:
        job = self.job(index)
        job.may_be_cancelled = True
        self.ask(Cancel(job.number))

    @precondition(lambda self: self.jobs)
    @rule(index=anything)
    def hold(self, index: int) -> None:
        job = self.job(index)
        answer = self.ask(Hold(job.number))
        if isinstance(answer, Changed) and isinstance(answer.state, Queued):
            job.is_held = True
            job.check(answer.state)

    @precondition(lambda self: self.jobs)
    @rule(index=anything)
    def release(self, index: int) -> None:
        job = self.job(index)
        if isinstance(self.ask(Hold(job.number, False)), Changed):
            job.is_held = False

    @precondition(lambda self: self.jobs)
    @rule(index=anything, priority=st.integers(-20, 19))
    def prioritize(self, index: int, priority: int) -> None:
        self.ask(Prioritize(self.job(index).number, priority))

    @precondition(lambda self: self.jobs)
    @rule(index=anything)
    def wait(self, index: int) -> None:
        self.await_end(self.job(index))

    @rule(dice=st.integers(0, KILL_ODDS - 1))
    def kill_and_restart(self, dice: int) -> None:
        """Kill the daemon in some draws: a restart takes as long as hundreds of requests.

        Not if `dice` is 0: hypothesis begins with a history of zeros, which would be all kills.
        """
        if dice % self.kill_odds != self.kill_odds - 1:
            return
        type(self).kills += 1
        self.client.close()
        self.daemon.kill()
        for job in self.jobs:
            job.kills += job.end is None
        self.daemon.start()
        self.client = RawClient(self.daemon.folder)

    def teardown(self) -> None:
        """Let every job end as the model says."""
        with self.stack:
            try:
                for job in self.jobs:
                    if job.is_held and job.end is None:
                        self.ask(Hold(job.number, False))
                        job.is_held = False
                for job in self.jobs:
                    self.await_end(job)
            finally:
                self.client.close()
        if self.histories % SHOWN_HISTORIES == 0:
            print(f"  {self.steps} steps in {self.histories} histories", flush=True)

    def job(self, index: int) -> ModelJob:
        return self.jobs[index % len(self.jobs)]

    def look_at(self, job: ModelJob) -> None:
        answer = self.ask(Show(job.number))
        assert isinstance(answer, State), (job, answer)
        job.check(answer.state)

    def await_end(self, job: ModelJob) -> None:
        deadline = time.monotonic() + END_SECONDS
        self.look_at(job)
        while job.end is None and not job.is_held:
            assert time.monotonic() < deadline, f"{job} hasn't ended after {END_SECONDS:g} s"
            time.sleep(0.002)
            self.look_at(job)


def measure(scale: Scale) -> Result:
    steps, length = scale.of(60, 2000, 50_000), scale.of(15, 100, 400)
    result = Result(
        "model_based",
        "Random requests, kills and restarts against a model",
        ("steps", "histories", "kills", "divergences"),
    )
    if scale.name == "long":
        counts = _explored(steps, length, PROCESSES, scale.seed)
    else:
        odds = scale.of(TEST_KILL_ODDS, KILL_ODDS, KILL_ODDS)
        counts = [explore(steps, length, scale.seed, odds)]
    done, histories, kills = map(sum, zip(*counts, strict=True))
    result.rows.append((str(done), str(histories), str(kills), "0"))
    result.data.append({"steps": done, "histories": histories, "kills": kills})
    result.bars += [
        Bar("divergences", 0, 0, at_least=False),
        Bar("steps, of those intended", done / steps, 1.0),
    ]
    return result


def _explored(
    steps: int, length: int, processes: int, first_seed: int
) -> list[tuple[int, int, int]]:
    """Return the steps, histories and kills of each process; they explore independently."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context) as pool:
        seeds = [first_seed + number for number in range(processes)]
        part = -(-steps // processes)
        return list(pool.map(explore, [part] * processes, [length] * processes, seeds))


def explore(
    steps: int, length: int, first_seed: int, kill_odds: int = KILL_ODDS
) -> tuple[int, int, int]:
    """Explore histories of `length` steps, `steps` in all; return the steps, histories and kills.

    Raises
    ------
    AssertionError
        The daemon and the model differ.
    """
    DaemonMachine.steps = DaemonMachine.histories = DaemonMachine.kills = 0
    DaemonMachine.kill_odds = kill_odds
    number = first_seed
    while DaemonMachine.steps < steps:  # some histories end early
        run_state_machine_as_test(  # type: ignore[no-untyped-call]
            seed(number)(DaemonMachine),
            settings=settings(
                max_examples=-(-(steps - DaemonMachine.steps) // length),
                stateful_step_count=length,
                deadline=None,
                database=None,
                phases=(Phase.generate, Phase.shrink),
                suppress_health_check=list(HealthCheck),
            ),
        )
        number += PROCESSES
    return DaemonMachine.steps, DaemonMachine.histories, DaemonMachine.kills


def _outcome(state: JobState) -> int | None:
    """Return the exit code of an ended job; None for others."""
    if isinstance(state, Done):
        return 0
    return state.error.code if isinstance(state, Failed) else None
