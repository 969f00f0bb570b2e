"""Starts a repeated job on the devices before the engine has done the rest of its work for it.

Accepting, planning and preparing a job takes the engine about 700 function calls until the first
chunk is sent, most of what a job of a millisecond waits for. If an equal request has run, with the
plan that is ready for this one, its commands are known: they are sent first, and the engine then
does its work as always, while the devices compute. What it orders is compared with what was sent;
a difference would be a bug, and costs the process (`processes/orders_ahead.py`).
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from hetsched.bounded_cache import BoundedCache
from hetsched.engine.context import EngineContext
from hetsched.engine.job.driver import JobDriver
from hetsched.engine.planning.repeated_jobs import JobKind
from hetsched.engine.processes.orders_ahead import RecordedOrders
from hetsched.engine.queued_job import QueuedJob
from hetsched.planner.records import JobPlan

log = logging.getLogger(__name__)

Request = tuple[bytes, int | None]
"""`CheckedJob.key`, memory limit."""

MAX_RECORDED = 64
"""Requests whose first commands are kept. As many as are kept bound; arbitrary."""
MAX_PLAN_BYTES = 1 << 16
"""Of a plan whose first commands are kept: those of longer jobs needn't hurry. Arbitrary."""


@dataclass(frozen=True, eq=False)
class RecordedStart:
    """How a job began, and what that depended on."""

    kind: JobKind
    plan: JobPlan
    kernel_changes: int
    orders: RecordedOrders


class EarlyStarts:
    """Records how jobs began, and begins equal ones in the same way."""

    def __init__(self, context: EngineContext) -> None:
        self._context = context
        self._starts: BoundedCache[Request, RecordedStart] = BoundedCache(max_entries=MAX_RECORDED)
        self._current: RecordedStart | None = None
        """Of the job whose commands have been sent ahead."""

    def begin(self, queued: QueuedJob) -> None:
        """Send the first commands of a job that will start at once, if they are known.

        `end` must be called once it has started, or can't.
        """
        try:
            self._begin(queued)
        except Exception:  # the job can do without
            log.exception("job %d: unexpected error while it was started early", queued.number)

    def _begin(self, queued: QueuedJob) -> None:
        request = _request(queued)
        start = None if request is None else self._starts.get(request)
        if start is None or not self._holds(start):
            return
        if self._context.planning.repeated_jobs.promise_plan(start.kind, start.plan):
            self._current = start
            self._context.fleet.ahead.repeat(start.orders, self._context.last_attempt_id + 1)

    def end(self) -> None:
        """Make sure that the job whose commands were sent has ordered them, if there is one."""
        start, self._current = self._current, None
        if start is not None:
            self._context.planning.repeated_jobs.take_promised_plan(start.kind)
            self._context.fleet.ahead.end(start.orders)

    def record(self, queued: QueuedJob, driver: JobDriver) -> None:
        """Record how a job has begun, in this round of the loop, for equal ones."""
        try:
            self._record(queued, driver)
        except Exception:
            log.exception("job %d: unexpected error while its start was recorded", queued.number)

    def _record(self, queued: QueuedJob, driver: JobDriver) -> None:
        request, plan, attempt_id = _request(queued), driver.plan, driver.attempt_id
        if self._current is not None or request is None or plan is None or attempt_id is None:
            return
        known = self._starts.get(request)
        if known is not None and known.plan is plan and self._holds(known):
            return  # but this job had to wait, or its plan wasn't ready
        if not self._is_repeatable(queued, plan):
            return
        orders = self._context.fleet.ahead.record(attempt_id, queued.held_segments)
        if driver.kind is not None and orders is not None:
            changes = self._context.planning.kernels.changes
            self._starts.put(request, RecordedStart(driver.kind, plan, changes, orders))

    def _holds(self, start: RecordedStart) -> bool:
        """Whether the engine would begin an equal job in the same way."""
        context = self._context
        return (
            context.planning.kernels.changes == start.kernel_changes
            and not context.disabled
            and context.health.is_perfect
            and context.fleet.ahead.can_repeat(start.orders)
        )

    def _is_repeatable(self, queued: QueuedJob, plan: JobPlan) -> bool:
        """Whether nothing but this module's records decides how an equal job begins."""
        context, job = self._context, queued.job
        arrays = [into for into in job.into.values() if into is not None]
        return (
            plan.nbytes <= MAX_PLAN_BYTES
            and not job.generate  # then segments would be new each time
            and len(arrays) == len(job.into)
            and not context.disabled
            and context.health.is_perfect
            and not any(context.fleet.info(name).shares_memory for name in job.devices)
        )


def _request(queued: QueuedJob) -> Request | None:
    """Return what equal requests have in common; None if each begins in its own way."""
    spec, key = queued.spec, queued.checked.key
    if not key or spec.verify or spec.measure or queued.job.iterative is not None:
        return None
    return key, spec.memory_limit
