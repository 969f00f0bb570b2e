"""Plans of whole jobs: variants, shares and chunks of all devices. Pure."""

from hetsched.planner.device_totals import planned_total
from hetsched.planner.job_planner import plan_job

__all__ = ["plan_job", "planned_total"]
