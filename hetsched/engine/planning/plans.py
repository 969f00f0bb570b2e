"""The plan that each kind of job repeats, and which of its runs are learnt from.

A kind of job is a workload with its parameters, storage, devices and memory limit. Learning from a
run and planning the next takes milliseconds of a core on which jobs compute, so a well known kind
is only sampled.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass

from hetsched.bounded_cache import BoundedCache
from hetsched.engine.admission.resolved_job import ResolvedJob
from hetsched.planner.plan_cache import PlanCache
from hetsched.planner.rebalancing.plan_comparison import prediction_error
from hetsched.planner.rebalancing.rebalancer import Rebalancer
from hetsched.planner.records import JobPlan

LEARNT_ONE_BY_ONE = 8
"""Runs of a kind of job after which its models are good enough to sample."""
SAMPLED = 16
"""One of so many further runs is learnt from: 1.3 ms of processor time, 0.1 ms a run."""
MAX_ERROR = 0.25
"""Relative error of a predicted time that is news if the next run shows it, too. Noise between
runs of the same speed is smaller on most machines."""
MAX_KINDS = 256
"""Kinds of job that are known; the one that wasn't used for longest is forgotten first."""
MAX_BYTES = 32 << 20
"""Of all their plans, estimated."""

JobKind = tuple[str, bytes, str, tuple[str, ...], int | None]
"""Workload, params, storage, devices, memory limit."""


def job_kind(job: ResolvedJob, devices: Iterable[str], memory_limit: int | None) -> JobKind:
    """Return the kind of `job` when it runs on `devices`."""
    return job.reference, job.encoded_params, job.storage, tuple(devices), memory_limit


@dataclass
class _Known:
    """What is known of one kind of job. `unlearnt`: runs since the last that was learnt from."""

    rebalancer: Rebalancer | None = None
    plan: JobPlan | None = None
    runs: int = 0
    unlearnt: int = 0
    was_off: bool = False

    def is_news(self, plan: JobPlan, seconds: float) -> bool:
        """Count a run of `plan` that took `seconds`; return whether to learn from it."""
        is_trial = plan.is_exploring or plan.has_probes or plan.tries_sizes
        is_off = prediction_error(plan, seconds) > MAX_ERROR
        is_new = self.runs < LEARNT_ONE_BY_ONE or is_trial or (is_off and self.was_off)
        self.runs += 1
        self.unlearnt += 1
        if is_new or self.unlearnt >= SAMPLED:
            self.unlearnt, self.was_off = 0, False
            if is_trial or is_off:
                self.plan = None  # the next job waits for a better one
            return True
        self.was_off = is_off
        return False


class Plans:
    """The plans of all kinds of job. Thread-safe: the planner's thread makes them."""

    def __init__(self, plan_cache: PlanCache) -> None:
        self._plan_cache = plan_cache
        self._kinds: BoundedCache[JobKind, _Known] = BoundedCache(
            max_entries=MAX_KINDS, max_bytes=MAX_BYTES
        )
        self._lock = threading.Lock()
        self.generation = 0
        """How often all plans were dropped."""

    def rebalancer(self, kind: JobKind, load: int) -> Rebalancer:
        """Return the rebalancer of this kind of job, creating it if necessary."""
        with self._lock:
            known = self._kinds.get_or_compute(kind, _Known)
            if known.rebalancer is None:
                known.rebalancer = Rebalancer(load, kind[3], self._plan_cache)
                self._kinds.put(kind, known, len(kind[1]))
            return known.rebalancer

    def runs(self, kind: JobKind) -> int:
        """Count the runs of this kind so far."""
        known = self._kinds.peek(kind)
        return 0 if known is None else known.runs

    def get(self, kind: JobKind) -> JobPlan | None:
        """Return the plan that the next job of this kind follows; None: one must be made."""
        with self._lock:
            known = self._kinds.get(kind)
            return None if known is None else known.plan

    def put(self, kind: JobKind, plan: JobPlan, generation: int) -> None:
        """Keep `plan` for the next jobs of this kind.

        `generation`: when planning began. If plans were dropped since then, the plan may use
        what has failed meanwhile.
        """
        with self._lock:
            known = self._kinds.peek(kind)
            if known is not None and generation == self.generation:
                known.plan = plan
                # The rebalancer keeps the last plan, too.
                self._kinds.put(kind, known, 2 * plan.nbytes + len(kind[1]))

    def on_run(self, kind: JobKind, plan: JobPlan, seconds: float) -> bool:
        """Count a run of `plan` that took `seconds`; return whether to learn from it."""
        with self._lock:
            known = self._kinds.get(kind)
            return known is None or known.is_news(plan, seconds)

    def clear(self) -> None:
        """Drop all plans, when their assumptions no longer hold; runs stay counted."""
        with self._lock:
            for kind, known in list(self._kinds.items()):
                known.plan = known.rebalancer = None
                self._kinds.put(kind, known, len(kind[1]))
            self.generation += 1
