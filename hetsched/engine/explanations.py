"""Accounts of the last jobs: keeps what they are made of; they are made when somebody asks.

Keeping costs a job nothing but references, and holds on to none of its arrays.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from hetsched.device import ChunkTimes, DeviceInfo
from hetsched.engine.admission.resolved_job import ResolvedJob
from hetsched.engine.planning.device_run import DeviceRun
from hetsched.errors import InputMissing, TryAgain
from hetsched.explain import Account
from hetsched.job import Done, Failed, JobState
from hetsched.planner.analysis.explanation import Subject, account
from hetsched.planner.job_planner import JobPlan
from hetsched.planner.plan_cache import PlanCache

MOST_JOBS = 64
"""Ended jobs of which accounts can be given. Arbitrary."""
MOST_CHUNKS = 100_000
"""Chunks of all these together, some hundred bytes each; those of the last job always stay."""

Times = Mapping[str, Sequence[tuple[int, ChunkTimes]]]
"""Device -> (units, times) of the chunks that it has done."""


@dataclass(frozen=True)
class Evidence:
    """What is known of one job. `params` becomes plain data only when it is asked for."""

    number: int
    workload: str
    load: int
    params: Any
    plan: JobPlan
    times: Times = field(repr=False)
    state: str = "running"
    notes: tuple[str, ...] = ()
    error: str | None = None

    @classmethod
    def of(cls, number: int, job: ResolvedJob, plan: JobPlan, times: Times) -> Evidence:
        """What is to be kept of `job`; not its arrays."""
        name, notes = job.workload.name, tuple(job.notes)
        return cls(number, name, job.load, job.params, plan, times, notes=notes)

    @property
    def chunks(self) -> int:
        planned = sum(len(one.chunks) for one in self.plan.assignments)
        return planned + sum(map(len, self.times.values()))

    def ended(self, state: JobState) -> Evidence:
        """The same with what became of the job."""
        assert isinstance(state, Done | Failed)
        error = state.error.message if isinstance(state, Failed) else None
        return replace(self, state=state.report.state, error=error)

    def account(self, info: Callable[[str], DeviceInfo], cache: PlanCache) -> Account:
        """All that there is to say; `info` of a device by its name."""
        given = {one.device: one for one in self.plan.assignments}
        ran = {
            device: DeviceRun(given[device], info(device), tuple(times))
            for device, times in self.times.items()
        }
        subject = Subject(
            self.number,
            self.state,
            self.workload,
            self.load,
            msgspec.to_builtins(self.params),
            self.notes,
            self.error,
        )
        return account(subject, self.plan, ran, cache=cache)


class Accounts:
    """Of one engine.

    Parameters
    ----------
    info : callable
        Device name -> DeviceInfo.
    cache : PlanCache
        Used where what `ask` returns is called: in the planner's thread.
    """

    def __init__(self, info: Callable[[str], DeviceInfo], cache: PlanCache) -> None:
        self._cache = cache
        self._info = info
        self._kept: dict[int, Evidence] = {}
        self._chunks = 0

    def keep(self, evidence: Evidence) -> None:
        """A job has ended. O(devices)."""
        self._kept[evidence.number] = evidence
        self._chunks += evidence.chunks
        while len(self._kept) > 1 and (len(self._kept) > MOST_JOBS or self._chunks > MOST_CHUNKS):
            oldest = self._kept.pop(next(iter(self._kept)))
            self._chunks -= oldest.chunks

    def ask(
        self, number: int, running: Evidence | None, waiting: Collection[int], newest: int
    ) -> Callable[[], Account]:
        """What makes the account of job `number`; may be called in another thread.

        Parameters
        ----------
        running : Evidence or None
            Of the job that runs now.
        waiting : collection of int
            Jobs that haven't begun.
        newest : int
            The last number that was given.

        Raises
        ------
        TryAgain
            It has not begun, or nothing is planned yet.
        InputMissing
            There is no such job, or it ended too long ago.
        """
        if running is not None and running.number == number:
            if not running.plan.assignments:
                raise TryAgain(f"job {number} is still being planned; ask again in a moment")
            times = {device: tuple(chunks) for device, chunks in running.times.items()}
            return functools.partial(
                replace(running, times=times).account, self._info, self._cache
            )
        if number in self._kept:
            return functools.partial(self._kept[number].account, self._info, self._cache)
        if number in waiting:
            raise TryAgain(f"job {number} hasn't begun, there is nothing to explain yet")
        if not 0 < number <= newest:
            raise InputMissing(f"no job {number}; the newest is {newest}")
        raise InputMissing(
            f"job {number} ended too long ago: what jobs did is kept of the last"
            f" {len(self._kept)} that ended"
        )
