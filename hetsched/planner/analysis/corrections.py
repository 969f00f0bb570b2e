"""The ratio of a device's predicted time to that of its planned phases.

A prediction is corrected by the measured times of whole shares. Bounds and other plans of the same
share follow from its phases, so they are multiplied by the same ratio; otherwise a bound could
exceed the prediction that it is shown with.
"""

from __future__ import annotations

from collections.abc import Mapping

from hetsched.planner.records import Assignment, JobPlan
from hetsched.plans.device_plan import Overlap
from hetsched.plans.timeline import timeline

Corrections = Mapping[str, float]
"""Device with a link and a share -> predicted seconds over planned seconds."""


def corrections_of(plan: JobPlan) -> Corrections:
    """Return the correction of each device with a link, a share and a prediction."""
    ratios = ((assignment.device, _correction(assignment)) for assignment in plan.assignments)
    return {device: ratio for device, ratio in ratios if ratio}


def _correction(assignment: Assignment) -> float | None:
    candidate, model, predicted = (
        assignment.candidate, assignment.model, assignment.predicted_seconds
    )  # fmt: skip
    if candidate is None or model is None or predicted is None or not candidate.info.link:
        return None
    planned = timeline(assignment.plan, model, Overlap.of(candidate.info.engines)).makespan
    return predicted / planned if planned > 0 else None
