"""The plan of one job, and of the next such job: made ahead, when this one has been told.

Planning takes a millisecond, ten where caches are cold: a warm job finds its plan made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from hetsched.device import DeviceInfo
from hetsched.engine.context import EngineContext
from hetsched.engine.planning.experience import plan_key
from hetsched.engine.planning.plan_and_learn import Measured, learn, makespan, plan, spread
from hetsched.engine.planning.planner_thread import OnDone
from hetsched.engine.resolve import Resolved
from hetsched.planner.job_planner import JobPlan
from hetsched.planner.rebalancer import MAX_PREDICTION_ERROR

MAX_SPREAD = 0.10
"""Spread of the devices' times up to which a plan is good. Arbitrary."""

MAX_DEFERRED = 2
"""Jobs in a row that may follow one plan before anything is learnt from them. Arbitrary."""


class Planning:
    """One start of a job, on the devices that are there.

    Parameters
    ----------
    infos : sequence of DeviceInfo
    limit : int or None, bytes
        Of each device's own memory.
    """

    def __init__(
        self, job: Resolved, infos: Sequence[DeviceInfo], limit: int | None, context: EngineContext
    ) -> None:
        self._job = job
        self._asleep = context.fleet.unstarted()
        self._infos = infos
        self._limit = limit
        self._planner_thread = context.planner_thread
        self._store, self._experience = context.store, context.experience
        self._known = plan_key(job, (info.name for info in infos), limit)

    def begin(self, then: OnDone) -> None:
        """``then(plan, error)``: at once if it was made ahead, else by the planner's thread."""
        ahead = None if self._job.measure else self._experience.ready.pop(self._known, None)
        if ahead is None:
            self._planner_thread.submit(self._plan, then)
        else:
            then(ahead, None)

    def lesson(self, found: JobPlan, measured: Mapping[str, Measured]) -> Callable[[], None]:
        """What learns from a whole, uncontended run; for the planner's thread.

        Until that has been done, another such job follows the same plan if it proved good.
        """
        if good(found, measured) and self._planner_thread.deferred_count < MAX_DEFERRED:
            self._experience.ready.setdefault(self._known, found)

        def lesson() -> None:
            learn(self._job, found, measured, self._store, self._experience, self._known)
            if not self._job.measure:
                self._experience.ready.pop(self._known, None)
                self._experience.ready[self._known] = self._plan()

        return lesson

    def _plan(self) -> JobPlan:
        # The job before may have been learnt from while this one waited for its turn.
        ahead = None if self._job.measure else self._experience.ready.pop(self._known, None)
        return ahead or plan(
            self._job, self._infos, self._store, self._experience, self._limit, self._asleep
        )


def good(found: JobPlan, measured: Mapping[str, Measured]) -> bool:
    """Whether all devices finished together, as predicted."""
    predicted = found.predicted_seconds
    if predicted is None or found.exploring:
        return False
    error = abs(makespan(measured) / predicted - 1)
    return error <= MAX_PREDICTION_ERROR and spread(measured) <= MAX_SPREAD
