"""Estimates of a job's time on other sets of devices, without planning it. Pure.

The paces of the present plan are scaled by what is known of each device beside other co-runners.
An estimate is a little optimistic: it only decides which sets are worth a plan and a trial.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hetsched.models import DeviceModel
from hetsched.models.curves.curve import planner_curve
from hetsched.models.evidence.co_runners import CO_RUNNERS, CoRunners, fewer, nearest_first
from hetsched.planner.records import Candidate, JobPlan
from hetsched.planner.variants import MAX_SIMILAR_LOAD_RATIO, rough_seconds

MAX_SPEEDUP = 1.5
"""Presumed speed of a device beside fewer co-runners than ever before, over its speed beside more
of them. Higher values find stronger contention, and cost more where there is none. Arbitrary."""


@dataclass(frozen=True)
class DeviceUse:
    """One device of a set: its variant, and its co-runners there."""

    candidate: Candidate
    variant: str
    co_runners: CoRunners

    @property
    def name(self) -> str:
        return self.candidate.info.name

    @property
    def model(self) -> DeviceModel | None:
        """The model beside these co-runners, or beside the nearest ones with measurements."""
        for co_runners in nearest_first(self.co_runners):
            model = self._model_beside(co_runners)
            if model is not None:
                return model
        return self.candidate.models.get(self.variant)

    @property
    def is_measured(self) -> bool:
        """Whether it was measured beside these co-runners."""
        return self._model_beside(self.co_runners) is not None

    def optimistic_model(self) -> tuple[DeviceModel | None, float]:
        """Return a model and a speedup: what the device may reach beside these co-runners.

        Its own measurements, or else those beside fewer co-runners, or else what it may gain if
        it was only measured beside more.
        """
        for co_runners in (self.co_runners, *fewer(self.co_runners)):
            model = self._model_beside(co_runners)
            if model is not None:
                return model, 1.0
        more = CO_RUNNERS[CO_RUNNERS.index(self.co_runners) + 1 :]
        has_more = any(self._model_beside(co_runners) for co_runners in more)
        return self.model, MAX_SPEEDUP if has_more else 1.0

    @property
    def all_runs(self) -> int:
        """Its runs beside these co-runners, of shares of any size."""
        return self.candidate.runs_beside.get(self.co_runners, {}).get(self.variant, 0)

    def runs(self, units: float) -> int:
        """Return its runs beside these co-runners, of shares like `units` if it has no link."""
        model = self._model_beside(self.co_runners)
        runs = self.all_runs
        evidence = None if model is None else planner_curve(model.total).evidence()
        if evidence is None or self.candidate.info.link:
            return runs  # jobs with limited memory add no times of whole shares
        low, high = units / MAX_SIMILAR_LOAD_RATIO, units * MAX_SIMILAR_LOAD_RATIO
        similar = sum(count for size, _, count in evidence.latest() if low <= size <= high)
        return min(runs, similar)

    def _model_beside(self, co_runners: CoRunners) -> DeviceModel | None:
        return self.candidate.models_beside.get(co_runners, {}).get(self.variant)


@dataclass(frozen=True)
class PresentPaces:
    """The devices of the present plan: how they are used, and their seconds per unit."""

    uses: Mapping[str, DeviceUse]
    paces: Mapping[str, float]

    @classmethod
    def of(cls, plan: JobPlan, uses: Mapping[str, DeviceUse]) -> PresentPaces:
        paces = {a.device: a.pace for a in plan.assignments}
        return cls(uses, {device: pace for device, pace in paces.items() if pace is not None})

    def pace(self, use: DeviceUse, units: float, *, is_optimistic: bool) -> float | None:
        """Return seconds per unit of a device used otherwise; None without measurements."""
        model, speedup = use.optimistic_model() if is_optimistic else (use.model, 1.0)
        if model is None:
            return None
        pace, present = self.paces.get(use.name), self.uses.get(use.name)
        if pace is None or present is None or present.model is None:
            return rough_seconds(model, units) / units / speedup
        if model is present.model:
            return pace / speedup
        if not use.candidate.info.link:
            return rough_seconds(model, units) / units / speedup
        ratio = rough_seconds(model, units) / rough_seconds(present.model, units)
        return pace * ratio / speedup


def estimated_seconds(
    load: int, uses: Sequence[DeviceUse], present: PresentPaces, *, is_optimistic: bool
) -> float | None:
    """Return the seconds of `load` on these devices if all finish together.

    None if one of them has no measurements. O(number of devices).
    """
    units = load / len(uses)
    speed = 0.0
    for use in uses:
        pace = present.pace(use, units, is_optimistic=is_optimistic)
        if not pace:
            return None
        speed += 1 / pace
    return load / speed
