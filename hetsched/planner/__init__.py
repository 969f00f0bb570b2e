"""Plans for whole jobs: variants, shares and chunks of all devices. Pure."""

from hetsched.planner.job_planner import plan_job
from hetsched.planner.total_curves import planned_total

__all__ = ["plan_job", "planned_total"]
