"""The ratio of a device's predicted time to that by the curves that bounds follow from.

With a link, a prediction is corrected by the measured times of whole shares, while bounds and
other plans of the same share follow from its phases. A core's prediction is corrected if its
process is fresh. Bounds are multiplied by the same ratio; otherwise one could exceed the
prediction that it is shown with.
"""

from __future__ import annotations

from collections.abc import Mapping

from hetsched.planner.records import Assignment, JobPlan
from hetsched.plans.device_plan import Overlap
from hetsched.plans.timeline import timeline

Corrections = Mapping[str, float]
"""Device with a share -> predicted seconds over those by its curves."""


def corrections_of(plan: JobPlan) -> Corrections:
    """Return the correction of each device with a share and a prediction."""
    ratios = ((assignment.device, _correction(assignment)) for assignment in plan.assignments)
    return cold_ratios(plan) | {device: ratio for device, ratio in ratios if ratio}


def cold_ratios(plan: JobPlan) -> dict[str, float]:
    """Return device -> its predicted time over that in a warm process; 1 for most."""
    return {
        each.device: each.predicted_seconds / float(plan.curves[each.device].time(each.plan.share))
        for each in plan.assignments
        if each.predicted_seconds is not None and each.device in plan.curves
    }


def _correction(assignment: Assignment) -> float | None:
    candidate, model, predicted = (
        assignment.candidate, assignment.model, assignment.predicted_seconds
    )  # fmt: skip
    if candidate is None or model is None or predicted is None or not candidate.info.link:
        return None
    planned = timeline(assignment.plan, model, Overlap.of(candidate.info.engines)).makespan
    return predicted / planned if planned > 0 else None
