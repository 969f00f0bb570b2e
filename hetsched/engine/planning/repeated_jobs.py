"""The rebalancer and the next plan of each kind of job.

A kind of job is a workload with its parameters, storage, devices and memory limit.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable

import msgspec

from hetsched.engine.admission.resolved_job import ResolvedJob
from hetsched.planner.plan_cache import PlanCache
from hetsched.planner.rebalancing.rebalancer import Rebalancer
from hetsched.planner.records import JobPlan

MAX_KINDS = 256
"""Maximum kinds of job to keep; the oldest is dropped first. Arbitrary."""
MAX_BYTES = 32 << 20
"""Maximum bytes of all their plans, estimated; the last kind is always kept. Arbitrary."""

JobKind = tuple[str, bytes, str, tuple[str, ...], int | None]
"""Workload, params, storage, devices, memory limit."""


def job_kind(job: ResolvedJob, devices: Iterable[str], memory_limit: int | None) -> JobKind:
    """Return the kind of `job` when it runs on `devices`."""
    params = msgspec.json.encode(job.params)
    return job.reference, params, job.storage, tuple(devices), memory_limit


class RepeatedJobs:
    """Rebalancers and plans made in advance, by kind of job. Thread-safe.

    Parameters
    ----------
    plan_cache : PlanCache
        For the rebalancers.
    """

    def __init__(self, plan_cache: PlanCache) -> None:
        self._plan_cache = plan_cache
        self._rebalancers: dict[JobKind, Rebalancer] = {}
        self._plans: dict[JobKind, JobPlan] = {}
        self._steady: dict[JobKind, JobPlan] = {}
        self._sizes: dict[JobKind, int] = {}
        self.nbytes = 0
        """Estimated bytes of all plans."""
        self.clearings = 0
        """How often everything was dropped."""
        self._lock = threading.Lock()

    def rebalancer(self, kind: JobKind, load: int) -> Rebalancer:
        """Return the rebalancer of this kind of job, creating it if necessary."""
        with self._lock:
            rebalancer = self._rebalancers.get(kind)
            if rebalancer is None:
                self._drop_oldest()
                rebalancer = self._rebalancers[kind] = Rebalancer(load, kind[3], self._plan_cache)
        return rebalancer

    def put_plan(self, kind: JobKind, plan: JobPlan, clearings: int) -> None:
        """Keep `plan` for the next job of this kind.

        `clearings`: when planning began. If everything was dropped since then, the plan may use
        what has failed meanwhile.
        """
        with self._lock:
            if clearings == self.clearings:
                self._plans[kind] = plan
                self._count(kind, plan)

    def offer_plan(self, kind: JobKind, plan: JobPlan) -> None:
        """Keep `plan` for the next job of this kind, unless it has one."""
        with self._lock:
            self._plans.setdefault(kind, plan)
            self._count(kind, plan)

    def repeat_plan(self, kind: JobKind, plan: JobPlan) -> None:
        """Offer `plan`, which served well, to the next job of this kind and after trials."""
        self.offer_plan(kind, plan)
        with self._lock:
            self._steady[kind] = plan

    def offer_steady_plan(self, kind: JobKind) -> bool:
        """Offer the plan that served well before a trial; return whether there is one."""
        steady = self._steady.get(kind)
        if steady is not None:
            self.offer_plan(kind, steady)
        return steady is not None

    def drop_steady_plan(self, kind: JobKind) -> None:
        """Forget the plan that served well: the last run was news."""
        with self._lock:
            self._steady.pop(kind, None)

    def take_plan(self, kind: JobKind) -> JobPlan | None:
        """Remove and return the plan for the next job of this kind; None if there is none."""
        return self._plans.pop(kind, None)

    def clear(self) -> None:
        """Drop everything, when its assumptions no longer hold."""
        with self._lock:
            self._rebalancers.clear()
            self._plans.clear()
            self._steady.clear()
            self._sizes.clear()
            self.nbytes = 0
            self.clearings += 1

    def _count(self, kind: JobKind, plan: JobPlan) -> None:
        """Record the size of a kind's plans, and drop the oldest kinds beyond the limit."""
        self.nbytes -= self._sizes.pop(kind, 0)
        # The rebalancer keeps the last plan, too.
        self._sizes[kind] = 3 * plan.nbytes + len(kind[1])
        self.nbytes += self._sizes[kind]
        while self.nbytes > MAX_BYTES and len(self._sizes) > 1:
            self._forget(next(iter(self._sizes)))

    def _drop_oldest(self) -> None:
        if len(self._rebalancers) >= MAX_KINDS:
            self._forget(next(iter(self._rebalancers)))

    def _forget(self, kind: JobKind) -> None:
        self._rebalancers.pop(kind, None)
        self._plans.pop(kind, None)
        self._steady.pop(kind, None)
        self.nbytes -= self._sizes.pop(kind, 0)
